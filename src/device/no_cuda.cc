// Linked in place of the files that call CUDA where no CUDA toolkit was found.
#include "device/device.h"
#include "device/gpu.h"

namespace segue {
namespace {

Error NoCuda(const char* operation) {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = "",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda', which needs nvcc"};
}

}  // namespace

Result<std::vector<DeviceInfo>> CudaDevices() { return NoCuda("list CUDA devices"); }

Result<GpuTraits> CurrentGpuTraits() { return NoCuda("ask the GPU"); }

Result<bool> IsCapturing(void*) { return NoCuda("ask the GPU"); }

}  // namespace segue
