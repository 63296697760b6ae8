// One thread's way from host memory to where weights live.
#pragma once

#include <cstdint>
#include <memory>

#include "base/span.h"
#include "device/device.h"
#include "device/upload_ring.h"
#include "segue/status.h"

namespace segue::model {

// Reads must begin and end at multiples of this to go past the page cache, and so must their
// memory: the largest block of the file systems and disks in use.
inline constexpr int64_t kReadAlignment = 4096;

// Pieces of page-locked memory of a lane: one is read into while the other is copied from. More
// would only cost the time to lock them.
inline constexpr int kLaneSlots = 2;

// Memory to read into, used in turn, and copies out of it that run beside the next read.
class WeightLane {
 public:
  virtual ~WeightLane() = default;  // waits for copies on their way
  // `bytes` of host memory at a multiple of kReadAlignment that no copy reads any more; valid
  // until the next call. The thread waits for the oldest copy if it has to.
  virtual Result<uint8_t*> Acquire(int64_t bytes) = 0;
  // Copies out of what Acquire gave last. It must not change until Acquire gives it again.
  virtual Status Upload(Span<const UploadRing::Copy> copies) = 0;
  // Waits until everything has arrived.
  virtual Status Finish() = 0;
};

struct WeightTarget {
  // kCuda: memory of the GPU `device`. kCpu: host memory that stands in for a GPU's, in tests.
  DeviceKind kind = DeviceKind::kCuda;
  int device = 0;
  // Host memory that lanes read into; null: PinnedMemory, or HostMemory() for kCpu.
  DeviceMemory* staging = nullptr;
};

// To be called, used and destroyed by one thread, whose current device becomes the target's.
// Errors: no CUDA in the build; no such device.
Result<std::unique_ptr<WeightLane>> MakeWeightLane(const WeightTarget& target);

}  // namespace segue::model
