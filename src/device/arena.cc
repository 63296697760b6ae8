#include "device/arena.h"

#include <algorithm>
#include <utility>

namespace segue {

Result<Arena> Arena::Create(DeviceMemory& memory, int64_t capacity_bytes) {
  Arena arena;
  arena.capacity_ = std::max(capacity_bytes, kAlignment);
  arena.base_ = static_cast<char*>(memory.Allocate(arena.capacity_));
  if (arena.base_ == nullptr) {
    return Error{.code = ErrorCode::kOutOfMemory,
                 .operation = "allocate activation memory",
                 .argument = "",
                 .got = "a refused allocation",
                 .wanted = std::to_string(arena.capacity_) + " bytes"};
  }
  arena.memory_ = &memory;
  return arena;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  if (base_ != nullptr) memory_->Free(base_);
  memory_ = std::exchange(other.memory_, nullptr);
  base_ = std::exchange(other.base_, nullptr);
  capacity_ = std::exchange(other.capacity_, 0);
  used_ = std::exchange(other.used_, 0);
  peak_ = std::exchange(other.peak_, 0);
  overflow_block_ = std::move(other.overflow_block_);
  overflow_bytes_ = std::exchange(other.overflow_bytes_, 0);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) memory_->Free(base_);
}

bool Arena::Extend(int64_t capacity_bytes) {
  if (capacity_bytes <= capacity_) return true;
  if (!memory_->Extend(base_, capacity_bytes)) return false;
  capacity_ = capacity_bytes;
  return true;
}

void* Arena::TakeBytes(const char* name, int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t begin = used_;
  if (!counting() && begin + rounded > capacity_) {
    if (overflow_block_.empty()) {
      overflow_block_ = name;
      overflow_bytes_ = bytes;
    }
    return nullptr;
  }
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return counting() ? nullptr : base_ + begin;
}

MatrixView Arena::TakeMatrix(const char* name, int64_t rows, int64_t cols, DType dtype) {
  const int64_t bytes = rows * cols * static_cast<int64_t>(SizeOf(dtype));
  return ContiguousMatrix(TakeBytes(name, bytes), dtype, rows, cols);
}

Status Arena::Check() const {
  if (overflow_block_.empty()) return {};
  return Error{.code = ErrorCode::kOutOfMemory,
               .operation = "lay out activation memory",
               .argument = "block '" + overflow_block_ + "'",
               .got = std::to_string(overflow_bytes_) + " bytes with " + std::to_string(used_) +
                      " of " + std::to_string(capacity_) + " in use",
               .wanted = "a plan that covers it"};
}

}  // namespace segue
