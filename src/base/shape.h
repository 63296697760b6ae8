// Extents of a tensor, at most kMaxRank of them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace segue {

class Shape {
 public:
  // Five: a 3-D convolution weight [out, in, kt, kh, kw] is the largest rank a checkpoint holds.
  static constexpr int kMaxRank = 5;

  Shape() = default;
  // Precondition: at most kMaxRank extents, none negative.
  Shape(std::initializer_list<int64_t> extents) {
    for (int64_t extent : extents) extents_[rank_++] = extent;
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[axis]; }
  // Precondition: rank() < kMaxRank.
  void Append(int64_t extent) { extents_[rank_++] = extent; }

  // Product of the extents; 1 for rank 0. Callers check overflow when the extents are untrusted.
  int64_t NumElements() const {
    int64_t count = 1;
    for (int axis = 0; axis < rank_; ++axis) count *= extents_[axis];
    return count;
  }

  bool operator==(const Shape&) const = default;

  // "[3072, 64]"
  std::string ToString() const;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace segue
