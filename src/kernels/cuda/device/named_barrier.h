// Named barriers: `threads` threads meet at barrier `id` (0 is __syncthreads).
#pragma once

#include <cstdint>

namespace segue::kernels::device {

__device__ __forceinline__ void NamedBarrierSync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts this warp's threads in without waiting.
__device__ __forceinline__ void NamedBarrierArrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace segue::kernels::device
