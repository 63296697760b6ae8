// bfloat16 in memory, float32 in registers: widening, rounding, and where a chain is rounded.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/element.h"

namespace segue::kernels::device {

__device__ __forceinline__ float Widen(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// To nearest, ties to even; any NaN becomes 0x7fff.
__device__ __forceinline__ uint16_t Narrow(float value) {
  return static_cast<uint16_t>(BFloat16::Pack(value, 0.0f));
}

// The result of one operation inside a chain. kSteps: rounded there, as the reference does, which
// writes every result to memory; otherwise the chain stays float32 up to its end.
template <bool kSteps>
__device__ __forceinline__ float Step(float value) {
  return kSteps ? __uint_as_float(BFloat16::Pack(value, 0.0f) << 16) : value;
}

// Two neighbours in a register, the lower one in the lower half. Sums and products of bfloat16
// values are rounded once, which gives the bits of float32 arithmetic rounded to bfloat16: float32
// has more than twice bfloat16's 8 bits of significand and two more, so that its own rounding does
// no harm (Figueroa, "When is double rounding innocuous?", 1995).
__device__ __forceinline__ float Low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float High(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ uint32_t AddPairs(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Neighbours that move together: 16 bytes.
inline constexpr int kVector = 8;
inline constexpr int kPairs = kVector / 2;

struct Floats {
  float at[kVector];
};

// A vector's pairs, to be indexed by constants only.
__device__ __forceinline__ uint32_t& PairAt(uint4& packed, int i) {
  return i == 0 ? packed.x : i == 1 ? packed.y : i == 2 ? packed.z : packed.w;
}
__device__ __forceinline__ uint32_t PairAt(const uint4& packed, int i) {
  return i == 0 ? packed.x : i == 1 ? packed.y : i == 2 ? packed.z : packed.w;
}

__device__ __forceinline__ Floats Widen(uint4 packed) {
  Floats floats;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    floats.at[2 * i] = Low(PairAt(packed, i));
    floats.at[2 * i + 1] = High(PairAt(packed, i));
  }
  return floats;
}

__device__ __forceinline__ uint4 Narrow(const Floats& floats) {
  return {BFloat16::Pack(floats.at[0], floats.at[1]), BFloat16::Pack(floats.at[2], floats.at[3]),
          BFloat16::Pack(floats.at[4], floats.at[5]), BFloat16::Pack(floats.at[6], floats.at[7])};
}

}  // namespace segue::kernels::device
