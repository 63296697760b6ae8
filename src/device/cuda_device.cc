#include <cuda_runtime_api.h>

#include "device/device.h"

namespace segue {
namespace {

Error CudaError(const char* call, cudaError_t status) {
  return {.code = ErrorCode::kUnsupported,
          .operation = "list CUDA devices",
          .argument = call,
          .got = cudaGetErrorString(status),
          .wanted = "a CUDA driver and a device"};
}

}  // namespace

Result<std::vector<DeviceInfo>> CudaDevices() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    return CudaError("cudaGetDeviceCount", status);
  }
  int current = 0;
  if (const cudaError_t status = cudaGetDevice(&current); status != cudaSuccess) {
    return CudaError("cudaGetDevice", status);
  }
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, index);
        status != cudaSuccess) {
      return CudaError("cudaGetDeviceProperties", status);
    }
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cudaError_t status = cudaSetDevice(index);
    if (status == cudaSuccess) status = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (status != cudaSuccess) return CudaError("cudaMemGetInfo", status);
    devices.push_back({.kind = DeviceKind::kCuda,
                       .index = index,
                       .name = properties.name,
                       .total_bytes = static_cast<int64_t>(total_bytes),
                       .free_bytes = static_cast<int64_t>(free_bytes)});
  }
  // The query must leave the caller's current device as it was.
  if (const cudaError_t status = cudaSetDevice(current); status != cudaSuccess) {
    return CudaError("cudaSetDevice", status);
  }
  return devices;
}

}  // namespace segue
