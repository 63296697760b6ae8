// Linked in place of cuda_device.cc where no CUDA toolkit was found.
#include "device/device.h"

namespace segue {

Result<std::vector<DeviceInfo>> CudaDevices() {
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "list CUDA devices",
               .argument = "",
               .got = "a build without CUDA",
               .wanted = "a build with the preset 'cuda', which needs nvcc"};
}

}  // namespace segue
