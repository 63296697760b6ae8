// Linked instead of device_check.cc where the build has no CUDA.
#include "kernels/cuda/device_check.h"

namespace segue::kernels::cuda {

const char* RejectsDevice(const Context& context) {
  return context.stream.device() == DeviceKind::kCuda ? "this build has no CUDA"
                                                      : "works on a GPU's memory only";
}

}  // namespace segue::kernels::cuda
