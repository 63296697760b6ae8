// Starts the plain attention kernel. Its instantiations of an element type are a file each.
#pragma once

#include "kernels/cuda/attention_plain/attention_plain.h"

namespace segue::kernels::plain {

template <class C>
cudaError_t Start(const KernelParams& params, int32_t ctas, cudaStream_t stream) {
  constexpr int kBytes = sizeof(SharedMemory<C>);
  static_assert(kBytes * C::kTiling.ctas_a_multiprocessor <=
                    227 * 1024 - 1024 * C::kTiling.ctas_a_multiprocessor,
                "CTAs, with the kilobyte that each one costs, do not fit into a multiprocessor");
  // A captured launch keeps it, and setting it again costs little beside a launch.
  const cudaError_t status =
      cudaFuncSetAttribute(AttentionKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  AttentionKernel<C><<<ctas, kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <class Element>
cudaError_t Launch(const KernelParams& params, int32_t ctas, cudaStream_t stream) {
  switch (AttentionCudaTilingOf(params.head_dim).columns) {
    case 32:
      return Start<Config<Element, 32>>(params, ctas, stream);
    case 64:
      return Start<Config<Element, 64>>(params, ctas, stream);
    case 128:
      return Start<Config<Element, 128>>(params, ctas, stream);
    default:
      return Start<Config<Element, 256>>(params, ctas, stream);
  }
}

extern template cudaError_t Launch<device::BFloat16>(const KernelParams&, int32_t, cudaStream_t);
extern template cudaError_t Launch<device::Float16>(const KernelParams&, int32_t, cudaStream_t);

}  // namespace segue::kernels::plain
