// The seam between models and the hardware they run on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

enum class DeviceKind : uint8_t { kCpu, kCuda };

const char* DeviceKindName(DeviceKind kind);

// What `segue inspect` prints of a device.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  std::string name;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // of a GPU not asked for, which would make a context there: 0
};

// Memory of one device, aligned to 256 bytes. Implementations: host memory; CUDA device memory.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Null when the allocation fails; the caller turns that into an Error with numbers.
  virtual void* Allocate(int64_t bytes) = 0;
  // Makes an allocation larger where it lies; what it holds stays. False: it cannot be, and nothing
  // has changed.
  virtual bool Extend(void* /*pointer*/, int64_t /*bytes*/) { return false; }
  virtual void Free(void* pointer) = 0;
};

// The host: physical memory and what of it is available now (/proc/meminfo).
DeviceInfo HostInfo();
DeviceMemory& HostMemory();

// CUDA devices, without making a context on any; in a build without CUDA, or on a machine without a
// driver, an Error that says why.
Result<std::vector<DeviceInfo>> CudaDevices();

}  // namespace segue
