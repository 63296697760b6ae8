#include <cuda_runtime_api.h>

#include "device/cuda_check.h"
#include "device/device.h"

namespace segue {

Result<std::vector<DeviceInfo>> CudaDevices() {
  constexpr const char* kOperation = "list CUDA devices";
  int count = 0;
  SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaGetDeviceCount", cudaGetDeviceCount(&count)));
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaGetDeviceProperties",
                                    cudaGetDeviceProperties(&properties, index)));
    const CurrentDevice current(index);
    SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaSetDevice", current.status()));
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    SEGUE_RETURN_IF_ERROR(
        CheckCuda(kOperation, "cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes)));
    devices.push_back({.kind = DeviceKind::kCuda,
                       .index = index,
                       .name = properties.name,
                       .total_bytes = static_cast<int64_t>(total_bytes),
                       .free_bytes = static_cast<int64_t>(free_bytes)});
  }
  return devices;
}

}  // namespace segue
