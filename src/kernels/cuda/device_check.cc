#include "kernels/cuda/device_check.h"

namespace segue::kernels::cuda {

const char* RejectsDevice(const Context& context) {
  return context.stream.device() == DeviceKind::kCuda ? nullptr : "works on a GPU's memory only";
}

}  // namespace segue::kernels::cuda
