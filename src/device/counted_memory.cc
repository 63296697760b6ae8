#include "device/counted_memory.h"

#include <algorithm>

namespace segue {

void* CountedMemory::Allocate(int64_t bytes) {
  void* pointer = memory_->Allocate(bytes);
  if (pointer == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  bytes_[pointer] = bytes;
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  return pointer;
}

void CountedMemory::Free(void* pointer) {
  {
    // Before the memory is free: afterwards another thread may get the same pointer.
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(pointer);
    if (found != bytes_.end()) {
      live_ -= found->second;
      bytes_.erase(found);
    }
  }
  memory_->Free(pointer);
}

int64_t CountedMemory::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

int64_t CountedMemory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace segue
