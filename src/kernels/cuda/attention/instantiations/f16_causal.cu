#include "kernels/cuda/attention/launch.h"

namespace segue::kernels::sm90 {

template cudaError_t Launch<Config<device::Float16, true>>(const KernelParams&, int32_t,
                                                           cudaStream_t);

}  // namespace segue::kernels::sm90
