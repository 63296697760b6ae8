// The bulk tensor copy engine: boxes of a tensor in global memory to shared memory.
#pragma once

#include "kernels/cuda/device/ptx.h"

namespace segue::kernels::device {

// How long L2 should keep the lines a copy brings: encodings of createpolicy.fractional with
// fraction 1, which are constants.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;
inline constexpr uint64_t kEvictLast = 0x14F0000000000000ull;

// The box at `coordinates` (innermost first) of a tensor of three dimensions, completing on
// `barrier`. Elements outside the tensor arrive as zeros and count as bytes.
// Preconditions: `destination` is a shared address, a multiple of 128; `map` points to a
// CUtensorMap in parameter or global memory.
__device__ __forceinline__ void LoadBox(uint32_t destination, const void* map, uint64_t* barrier,
                                        int3 coordinates, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(SharedAddress(barrier)), "r"(coordinates.x),
      "r"(coordinates.y), "r"(coordinates.z), "l"(policy)
      : "memory");
}

}  // namespace segue::kernels::device
