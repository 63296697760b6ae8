#include <cuda_runtime_api.h>

#include "device/cuda_check.h"
#include "device/device.h"

namespace segue {

Result<std::vector<DeviceInfo>> CudaDevices() {
  constexpr const char* kOperation = "list CUDA devices";
  int count = 0;
  SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaGetDeviceCount", cudaGetDeviceCount(&count)));
  std::vector<DeviceInfo> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaGetDeviceProperties",
                                    cudaGetDeviceProperties(&properties, index)));
    devices.push_back({.kind = DeviceKind::kCuda,
                       .index = index,
                       .name = properties.name,
                       .total_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

}  // namespace segue
