#include "kernels/cuda/attention_plain/launch.h"

namespace segue::kernels::plain {

template cudaError_t Launch<device::BFloat16>(const KernelParams&, int32_t, cudaStream_t);

}  // namespace segue::kernels::plain
