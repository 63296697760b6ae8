// Memory that keeps count of what is taken from it.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "device/device.h"

namespace segue {

// Any number of threads may call.
class MemoryCount {
 public:
  void Add(int64_t bytes);  // negative: given back

  // Bytes taken and not yet given back, and the most there were at once.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;

 private:
  mutable std::mutex mutex_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

// Hands every call on to another memory and adds what was asked for to a count, which others may
// share. Any number of threads may call.
class CountedMemory : public DeviceMemory {
 public:
  // Precondition: both outlive this.
  CountedMemory(DeviceMemory& memory, MemoryCount& count) : memory_(&memory), count_(&count) {}

  void* Allocate(int64_t bytes) override;
  bool Extend(void* pointer, int64_t bytes) override;
  void Free(void* pointer) override;

 private:
  // Of an allocation; returns its bytes so far.
  int64_t Replace(void* pointer, int64_t bytes);

  DeviceMemory* memory_;
  MemoryCount* count_;
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> bytes_;  // of every allocation
};

}  // namespace segue
