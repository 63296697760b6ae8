// Device memory and page-locked host memory. In a build without CUDA every allocation fails.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace segue {

// Memory of one CUDA device, aligned to 256 bytes, whichever device is current. Any number of
// threads may call. Freeing waits for the device, as cudaFree does; not for use inside a step.
class CudaMemory : public DeviceMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {}
  int device() const { return device_; }

  // Null when there is not enough or no such device; nothing is left behind that a later check of
  // a launch would report.
  void* Allocate(int64_t bytes) override;
  void Free(void* pointer) override;

 private:
  int device_;
};

// Host memory that the GPU reads and writes by itself, so that copies run beside the host. Page
// aligned; locking costs about a quarter of a second a GiB, so it is allocated once and kept.
class PinnedMemory : public DeviceMemory {
 public:
  void* Allocate(int64_t bytes) override;
  void Free(void* pointer) override;
};

}  // namespace segue
