// Starts one instantiation of the sm90 attention kernel. Each is compiled in a file of its own.
#pragma once

#include "kernels/cuda/attention/attention_sm90.h"

namespace segue::kernels::sm90 {

template <class C>
cudaError_t Launch(const KernelParams& params, int32_t ctas, cudaStream_t stream) {
  constexpr int kBytes = sizeof(SharedMemory<C>);
  static_assert(kBytes <= 227 * 1024, "more shared memory than a CTA can have");
  const cudaError_t status =
      cudaFuncSetAttribute(AttentionKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  AttentionKernel<C><<<ctas, C::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

extern template cudaError_t Launch<Config<device::BFloat16, false>>(const KernelParams&, int32_t,
                                                                    cudaStream_t);
extern template cudaError_t Launch<Config<device::BFloat16, true>>(const KernelParams&, int32_t,
                                                                   cudaStream_t);
extern template cudaError_t Launch<Config<device::Float16, false>>(const KernelParams&, int32_t,
                                                                   cudaStream_t);
extern template cudaError_t Launch<Config<device::Float16, true>>(const KernelParams&, int32_t,
                                                                  cudaStream_t);

}  // namespace segue::kernels::sm90
