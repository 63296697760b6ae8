#include "device/counted_memory.h"

#include <algorithm>

namespace segue {

void MemoryCount::Add(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  live_ += bytes;
  peak_ = std::max(peak_, live_);
}

int64_t MemoryCount::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

int64_t MemoryCount::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

int64_t CountedMemory::Replace(void* pointer, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = bytes_.find(pointer);
  const int64_t before = found == bytes_.end() ? 0 : found->second;
  if (bytes > 0) {
    bytes_[pointer] = bytes;
  } else if (found != bytes_.end()) {
    bytes_.erase(found);
  }
  return before;
}

void* CountedMemory::Allocate(int64_t bytes) {
  void* pointer = memory_->Allocate(bytes);
  if (pointer == nullptr) return nullptr;
  Replace(pointer, bytes);
  count_->Add(bytes);
  return pointer;
}

bool CountedMemory::Extend(void* pointer, int64_t bytes) {
  if (!memory_->Extend(pointer, bytes)) return false;
  count_->Add(bytes - Replace(pointer, bytes));
  return true;
}

void CountedMemory::Free(void* pointer) {
  // Before the memory is free: afterwards another thread may get the same pointer.
  count_->Add(-Replace(pointer, 0));
  memory_->Free(pointer);
}

}  // namespace segue
