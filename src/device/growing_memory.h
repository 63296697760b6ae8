// Device memory that becomes larger where it is.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "device/cuda_memory.h"

namespace segue {

// Each allocation is a range of addresses as large as the device, with memory behind its beginning.
// Extending it puts memory behind more of the range: addresses that a recorded graph holds stay
// good. Where the driver cannot do that, allocations are those of CudaMemory and none can be
// extended. In a build without CUDA every allocation fails.
//
// Any number of threads may call. Freeing waits for the device.
class GrowingMemory : public DeviceMemory {
 public:
  explicit GrowingMemory(int device) : plain_(device) {}
  ~GrowingMemory() override;

  void* Allocate(int64_t bytes) override;
  bool Extend(void* pointer, int64_t bytes) override;
  void Free(void* pointer) override;

 private:
  // A piece of memory behind a range.
  struct Piece {
    uint64_t handle = 0;
    int64_t bytes = 0;
  };
  struct Range {
    uint64_t address = 0;
    int64_t reserved = 0;
    int64_t mapped = 0;
    std::vector<Piece> pieces;
  };

  // Memory behind the first `bytes` of the range. False: nothing has changed.
  bool MapUpTo(Range& range, int64_t bytes) const;
  void Release(Range& range) const;

  CudaMemory plain_;
  std::mutex mutex_;
  std::map<void*, Range> ranges_;
};

}  // namespace segue
