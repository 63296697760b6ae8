// Memory that keeps count of what is taken from it.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "device/device.h"

namespace segue {

// Hands every allocation on to another memory. Any number of threads may call.
class CountedMemory : public DeviceMemory {
 public:
  // Precondition: `memory` outlives this.
  explicit CountedMemory(DeviceMemory& memory) : memory_(&memory) {}

  void* Allocate(int64_t bytes) override;
  void Free(void* pointer) override;

  // Bytes asked for and not yet given back, and the most there were at once.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;

 private:
  DeviceMemory* memory_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> bytes_;  // of every allocation
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

}  // namespace segue
