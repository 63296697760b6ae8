#include "gpu/delayed_attention.h"

#include "kernels/cuda/attention/launch.h"

#ifndef SEGUE_RANDOM_DELAYS
#error "a build without delays shows nothing"
#endif

namespace segue::kernels {
namespace sm90 {

template cudaError_t Launch<Config<device::BFloat16, false>>(const KernelParams&, int32_t,
                                                             cudaStream_t);
template cudaError_t Launch<Config<device::BFloat16, true>>(const KernelParams&, int32_t,
                                                            cudaStream_t);

}  // namespace sm90

cudaError_t SetRandomDelays(bool on) {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) return status;
  const int32_t value = on ? 1 : 0;
  return cudaMemcpyToSymbol(device::random_delays, &value, sizeof(value));
}

}  // namespace segue::kernels
