// Starts one instantiation of the sm90 attention kernel. Each is compiled in a file of its own.
#pragma once

#include <atomic>

#include "kernels/cuda/attention/attention_sm90.h"

namespace segue::kernels::sm90 {

template <class C>
cudaError_t Launch(const KernelParams& params, int32_t ctas, cudaStream_t stream) {
  constexpr int kBytes = sizeof(SharedMemory<C>);
  static_assert(kBytes <= 227 * 1024, "more shared memory than a CTA can have");
  // Once for every device: a bit each, and again where there are more than bits.
  static std::atomic<uint64_t> prepared{0};
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((prepared.load(std::memory_order_relaxed) & bit) == 0) {
    status = cudaFuncSetAttribute(AttentionKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kBytes);
    if (status != cudaSuccess) return status;
    prepared.fetch_or(bit, std::memory_order_relaxed);
  }
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
