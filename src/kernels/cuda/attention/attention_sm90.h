// The sm90 attention kernel. One CTA an SM: a producer warp and two consumer warpgroups.
#pragma once

#include "kernels/cuda/attention/consumer.h"
#include "kernels/cuda/attention/producer.h"

namespace segue::kernels::sm90 {

// Dynamic shared memory: sizeof(SharedMemory<C>), starting at a multiple of 1024.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    AttentionKernel(const __grid_constant__ KernelParams params) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  SharedMemory<C>& shared = *reinterpret_cast<SharedMemory<C>*>(bytes);
  if (threadIdx.x == 0) InitBarriers(shared);
  __syncthreads();

  if (threadIdx.x < 128) {
    device::ShrinkRegisters<C::kProducerRegisters>();
    if (threadIdx.x < 32) Producer<C>(params, shared).Run();
  } else {
    device::GrowRegisters<C::kConsumerRegisters>();
    Consumer<C>(shared, params.scale_log2).Run();
  }
}

}  // namespace segue::kernels::sm90
