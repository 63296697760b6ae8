// The 16-bit element types of the tensor cores.
#pragma once

#include <cstdint>

namespace segue::kernels::device {

struct BFloat16 {
  // Rounds to nearest even; `low` goes to the lower half, which is the lower column.
  __device__ __forceinline__ static uint32_t Pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
};

struct Float16 {
  __device__ __forceinline__ static uint32_t Pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  __device__ __forceinline__ static float Widen(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};

}  // namespace segue::kernels::device
