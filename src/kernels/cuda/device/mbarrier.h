// Transaction barriers in shared memory (mbarrier): what producer and consumers wait on.
#pragma once

#include "kernels/cuda/device/ptx.h"

namespace segue::kernels::device {

#ifdef SEGUE_RANDOM_DELAYS
static __constant__ int32_t random_delays;  // 0: none
#endif

// In a build with SEGUE_RANDOM_DELAYS each warp sleeps now and then where roles hand over to each
// other, so that an order that only usually holds shows as wrong bytes.
__device__ __forceinline__ void RandomDelay() {
#ifdef SEGUE_RANDOM_DELAYS
  if (random_delays == 0) return;
  const uint32_t mixed =
      (static_cast<uint32_t>(clock64()) ^ (threadIdx.x / 32 * 977 + blockIdx.x)) * 2654435761u;
  if (mixed >> 29 == 0) __nanosleep(mixed >> 16 & 0xfff);
#endif
}

// `count` arrivals complete a phase. Follow the last one with FenceBarrierInit and __syncthreads.
__device__ __forceinline__ void BarrierInit(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count)
               : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void BarrierArrive(uint64_t* barrier) {
  RandomDelay();
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// Arrives, and makes the phase wait for `bytes` of asynchronous copies too.
__device__ __forceinline__ void BarrierArriveExpect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
  RandomDelay();  // between the expectation and the copies
}

// Returns once the phase of this parity is complete. Of a fresh barrier, parity 1 counts as
// complete: a producer's first wait for an empty slot passes.
__device__ __forceinline__ void BarrierWait(uint64_t* barrier, uint32_t parity) {
  RandomDelay();
  const uint32_t address = SharedAddress(barrier);
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  } while (done == 0);
}

}  // namespace segue::kernels::device
