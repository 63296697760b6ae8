// Matrices of bfloat16 in a GPU's memory with canaries around every row, and the same values for
// the reference on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "device/tensor_view.h"
#include "gpu/gpu_memory.h"
#include "kernels/row_table.h"

namespace segue::kernels {

// Values that bfloat16 holds, [rows, cols] without gaps.
struct Values {
  std::vector<float> data;
  int64_t rows = 0;
  int64_t cols = 0;

  float* Row(int64_t row) { return data.data() + row * cols; }
  const float* Row(int64_t row) const { return data.data() + row * cols; }
  MatrixView View() { return ContiguousMatrix(data.data(), rows, cols); }
};

inline Values RandomValues(int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0f,
                           float center = 0.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(center, scale);
  Values values = {.rows = rows, .cols = cols};
  for (int64_t i = 0; i < rows * cols; ++i) values.data.push_back(RoundToBF16(normal(engine)));
  return values;
}

// A matrix on the device between canaries, which are NaN.
class DeviceMatrix {
 public:
  // `offset` elements more in front: 1 leaves no row aligned.
  DeviceMatrix(const Values& values, int64_t padding, int64_t offset = 0)
      : rows_(values.rows),
        cols_(values.cols),
        stride_(values.cols + padding),
        first_(kGuard + offset),
        bits_(static_cast<size_t>(first_ + rows_ * stride_ + kGuard), kCanary),
        memory_(static_cast<int64_t>(bits_.size() * sizeof(uint16_t))) {
    Set(values);
  }
  // Poisoned, to be written.
  static DeviceMatrix Poisoned(int64_t rows, int64_t cols, int64_t padding, int64_t offset = 0) {
    return {NoNumbers(rows, cols), padding, offset};
  }
  void Poison() { Set(NoNumbers(rows_, cols_)); }

  void Set(const Values& values) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        bits_[At(row, col)] = FloatToBF16(values.Row(row)[col]);
      }
    }
    memory_.Write(bits_.data());
  }

  MatrixView View() const {
    return {.data = static_cast<uint16_t*>(memory_.data()) + first_,
            .dtype = DType::kBF16,
            .rows = rows_,
            .cols = cols_,
            .stride = stride_};
  }
  WeightView Weight(const Shape& shape) const {
    return {.data = View().data, .dtype = DType::kBF16, .shape = shape};
  }
  RowTable Table(const int32_t* index) const {
    return {.data = View().data, .rows = rows_, .stride = stride_, .index = index};
  }

  // Everything, canaries as well.
  std::vector<uint16_t> Bits() const {
    std::vector<uint16_t> bits(bits_.size());
    memory_.Read(bits.data());
    return bits;
  }
  Values Get() const {
    const std::vector<uint16_t> bits = Bits();
    Values values = {.rows = rows_, .cols = cols_};
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        values.data.push_back(BF16ToFloat(bits[At(row, col)]));
      }
    }
    return values;
  }
  // Whether only elements changed since Set.
  bool CanariesLive() const { return ChangedOnly(0, cols_); }
  // Whether only elements in columns [first, first + count) of the rows changed since Set.
  bool ChangedOnly(int64_t first, int64_t count) const {
    const std::vector<uint16_t> bits = Bits();
    for (size_t i = 0; i < bits.size(); ++i) {
      const int64_t in_rows = static_cast<int64_t>(i) - first_;
      const int64_t col = in_rows >= 0 && stride_ > 0 ? in_rows % stride_ : -1;
      const bool inside = in_rows >= 0 && in_rows < rows_ * stride_ && col >= first &&
                          col < first + count && col < cols_;
      if (!inside && bits[i] != bits_[i]) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr uint16_t kCanary = 0xffa5;

  static Values NoNumbers(int64_t rows, int64_t cols) {
    return {.data = std::vector<float>(static_cast<size_t>(rows * cols), NAN),
            .rows = rows,
            .cols = cols};
  }
  size_t At(int64_t row, int64_t col) const {
    return static_cast<size_t>(first_ + row * stride_ + col);
  }

  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  int64_t first_;
  std::vector<uint16_t> bits_;
  GpuMemory memory_;
};

}  // namespace segue::kernels
