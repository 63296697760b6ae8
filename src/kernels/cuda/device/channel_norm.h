// The arithmetic of the picture decoder's norm, used by the plain and the fast kernel alike.
#pragma once

#include "kernels/cuda/device/bf16.h"
#include "kernels/cuda/device/row_math.h"

namespace segue::kernels::device {

// What a pixel's elements are divided by.
struct Divisor {
  float value;
  float reciprocal;
};

// Of a pixel's sum of squares: max(sqrt(squares), smallest). Where squares overflow, every quotient
// becomes 0, as a division by infinity gives.
__device__ __forceinline__ Divisor DivisorOf(float squares, float smallest) {
  const float norm = fmaxf(__fsqrt_rn(squares), smallest);
  const float reciprocal = __frcp_rn(norm);
  return {isinf(norm) ? 0.0f : norm, reciprocal};
}

// x / divisor, rounded once: a quotient by the reciprocal, corrected by its remainder (Markstein).
__device__ __forceinline__ float Quotient(float x, const Divisor& divisor) {
  const float q = __fmul_rn(x, divisor.reciprocal);
  return __fmaf_rn(__fmaf_rn(-q, divisor.value, x), divisor.reciprocal, q);
}

// The elements of a pixel: x / norm * sqrt(channels) * gamma, then SiLU if asked.
template <bool kSteps>
__device__ __forceinline__ float ChannelNorm(float x, const Divisor& divisor, float root,
                                             float gamma, bool silu) {
  float value = Step<kSteps>(Quotient(x, divisor));
  value = Step<kSteps>(__fmul_rn(value, root));
  value = Step<kSteps>(__fmul_rn(value, gamma));
  return silu ? Silu(value) : value;
}

}  // namespace segue::kernels::device
