// Activation memory: one allocation, cut into named blocks by a bump pointer.
//
// A forward describes its blocks once, in a layout function that takes an Arena. Run on a counting
// arena (no memory behind it) the same function yields the bytes needed, so that the memory plan
// that `segue inspect` prints and the memory a run uses cannot disagree.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "device/tensor_view.h"
#include "segue/status.h"

namespace segue {

class Arena {
 public:
  // An arena that only counts: every block is a null pointer.
  Arena() = default;
  // Precondition: `memory` outlives the arena.
  static Result<Arena> Create(DeviceMemory& memory, int64_t capacity_bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // More room where the blocks lie: their addresses stay good. False: the memory cannot do that,
  // and nothing has changed. Precondition: not a counting arena.
  bool Extend(int64_t capacity_bytes);

  bool counting() const { return base_ == nullptr; }
  // Every block starts at a multiple of this: what a GPU's allocator gives and what workspaces of
  // attention want; more than a cache line.
  static constexpr int64_t kAlignment = 256;

  // A block of `count` elements of type T. When the arena is full the pointer is null, the arena
  // remembers the block's name, and Check() reports it: layout functions stay free of error paths.
  template <typename T>
  T* Take(const char* name, int64_t count) {
    return static_cast<T*>(TakeBytes(name, count * static_cast<int64_t>(sizeof(T))));
  }
  // A contiguous [rows, cols] block.
  MatrixView TakeMatrix(const char* name, int64_t rows, int64_t cols, DType dtype = DType::kF32);
  void* TakeBytes(const char* name, int64_t bytes);

  // Error if a block did not fit: names the block, its bytes and the capacity.
  Status Check() const;

  // The bump position; Release(mark) frees everything taken since.
  int64_t Mark() const { return used_; }
  void Release(int64_t mark) { used_ = mark; }
  int64_t used_bytes() const { return used_; }
  // The most that was ever in use at once.
  int64_t peak_bytes() const { return peak_; }
  int64_t capacity_bytes() const { return capacity_; }

 private:
  DeviceMemory* memory_ = nullptr;
  char* base_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  std::string overflow_block_;
  int64_t overflow_bytes_ = 0;
};

}  // namespace segue
