// Linked instead of device_check.cc where the build has no CUDA.
#include "kernels/cuda/device_check.h"

namespace segue::kernels::cuda {

const char* RejectsDevice(const Context&) { return "this build has no CUDA"; }

}  // namespace segue::kernels::cuda
