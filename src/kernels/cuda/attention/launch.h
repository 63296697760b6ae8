// Starts one instantiation of the sm90 attention kernel. Each is compiled in a file of its own.
#pragma once

#include <atomic>

#include "kernels/cuda/attention/attention_sm90.h"

namespace segue::kernels::sm90 {

// Lets the kernel have its shared memory on the current device. A device forgets with its context
// (cudaDeviceReset), so what was `allowed` is a reason to try and no promise.
template <class C>
cudaError_t AllowSharedMemory(std::atomic<uint64_t>& allowed, uint64_t bit) {
  constexpr int kBytes = sizeof(SharedMemory<C>);
  static_assert(kBytes <= 227 * 1024, "more shared memory than a CTA can have");
  const cudaError_t status =
      cudaFuncSetAttribute(AttentionKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status == cudaSuccess) allowed.fetch_or(bit, std::memory_order_relaxed);
  return status;
}

template <class C>
cudaError_t Launch(const KernelParams& params, int32_t ctas, cudaStream_t stream) {
  // Once for every device: a bit each, and every time where there are more than bits.
  static std::atomic<uint64_t> allowed{0};
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  // By address: the triple chevrons would copy the parameters, 8 KiB, once more.
  void* arguments[] = {const_cast<KernelParams*>(&params)};
  const auto launch = [&] {
    return cudaLaunchKernel(AttentionKernel<C>, dim3(static_cast<uint32_t>(ctas)),
                            dim3(C::kThreads), arguments, sizeof(SharedMemory<C>), stream);
  };
  if ((allowed.load(std::memory_order_relaxed) & bit) != 0) {
    status = launch();
    if (status != cudaErrorInvalidValue) return status;
    cudaGetLastError();
  }
  status = AllowSharedMemory<C>(allowed, bit);
  return status == cudaSuccess ? launch() : status;
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
