// The arithmetic of row operations, one function an expression of the reference, used by plain and
// fused kernels alike. Every operation rounds as written: nothing is contracted.
#pragma once

#include "kernels/cuda/device/bf16.h"
#include "kernels/cuda/device/ptx.h"

namespace segue::kernels::device {

// 1 / x within 1 ulp; results below 2^-126 become 0.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x / (1 + e^-x), within 4 ulp; what is below 1.1e-36 in magnitude may become 0. x log2(e) is
// carried in two floats: rounded to one, it would cost the result |x| ulp.
__device__ __forceinline__ float Silu(float x) {
  constexpr float kMinusLog2E = -1.44269502f;
  constexpr float kMinusLog2ERest = -1.92596303e-8f;
  constexpr float kLn2 = 0.693147182f;
  // 2^127.4, whose reciprocal is 0 here, and its inverse: beyond, nothing changes but overflow.
  constexpr float kLargest = 88.3f;
  const float bounded = fmaxf(-kLargest, fminf(kLargest, x));
  const float high = __fmul_rn(bounded, kMinusLog2E);
  const float low = __fmaf_rn(bounded, kMinusLog2ERest, __fmaf_rn(bounded, kMinusLog2E, -high));
  const float power = Exp2(high);
  const float exp = __fmaf_rn(__fmul_rn(power, kLn2), low, power);
  return __fmul_rn(x, Reciprocal(__fadd_rn(1.0f, exp)));
}

// 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + 2^t), t = -2 u log2(e): the
// same function without the cancellation of 1 + tanh. Within 4 ulp and what rounding t costs.
__device__ __forceinline__ float GeluTanh(float x) {
  constexpr float kLinear = -2.30220819f;  // -2 sqrt(2/pi) log2(e)
  constexpr float kCubic = -0.10294324f;   // kLinear 0.044715
  const float t = __fmul_rn(x, __fmaf_rn(__fmul_rn(x, x), kCubic, kLinear));
  return __fmul_rn(x, Reciprocal(__fadd_rn(1.0f, Exp2(t))));
}

// 1 / sqrt(x) within 1 ulp, x > 0: the hardware's estimate and a Newton step.
__device__ __forceinline__ float InverseRoot(float x) {
  float estimate;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  const float error = __fmaf_rn(__fmul_rn(-x, estimate), estimate, 1.0f);
  const float root = __fmaf_rn(__fmul_rn(0.5f, estimate), error, estimate);
  return estimate == 0.0f ? 0.0f : root;  // of infinity, whose error is a NaN
}

// What a row's sum of squares makes its elements be multiplied by. The count is one, inverted.
__device__ __forceinline__ float InverseDeviation(float squares, float inverse_count, float eps) {
  return InverseRoot(__fadd_rn(__fmul_rn(squares, inverse_count), eps));
}

// The functions of pairs below round each step in kSteps; else they are float32 up to the end. What
// is packed is bfloat16; a single element is a pair whose other half is ignored.

// h + gate * y
template <bool kSteps>
__device__ __forceinline__ uint32_t GateResidual(uint32_t h, uint32_t gate, uint32_t y) {
  if (kSteps) return AddPairs(h, MultiplyPairs(gate, y));
  return BFloat16::Pack(__fadd_rn(Low(h), __fmul_rn(Low(gate), Low(y))),
                        __fadd_rn(High(h), __fmul_rn(High(gate), High(y))));
}

// (x - mean) * inverse
__device__ __forceinline__ float Normalize(float x, float mean, float inverse) {
  return __fmul_rn(__fsub_rn(x, mean), inverse);
}

// x * (1 + scale) + shift
template <bool kSteps>
__device__ __forceinline__ uint32_t Modulate(float low, float high, uint32_t scale,
                                             uint32_t shift) {
  if (kSteps) {
    constexpr uint32_t kOnes = 0x3f803f80;
    return AddPairs(MultiplyPairs(BFloat16::Pack(low, high), AddPairs(kOnes, scale)), shift);
  }
  return BFloat16::Pack(__fadd_rn(__fmul_rn(low, __fadd_rn(1.0f, Low(scale))), Low(shift)),
                        __fadd_rn(__fmul_rn(high, __fadd_rn(1.0f, High(scale))), High(shift)));
}

// x * inverse * weight, rounded for memory.
template <bool kSteps>
__device__ __forceinline__ uint32_t WeightPair(float low, float high, uint32_t weight) {
  if (kSteps) return MultiplyPairs(BFloat16::Pack(low, high), weight);
  return BFloat16::Pack(__fmul_rn(low, Low(weight)), __fmul_rn(high, High(weight)));
}
// The same, to go on with.
template <bool kSteps>
__device__ __forceinline__ float2 WeightFloats(float low, float high, uint32_t weight) {
  if (kSteps) {
    const uint32_t pair = MultiplyPairs(BFloat16::Pack(low, high), weight);
    return {Low(pair), High(pair)};
  }
  return {__fmul_rn(low, Low(weight)), __fmul_rn(high, High(weight))};
}
// By a weight that is not bfloat16.
template <bool kSteps>
__device__ __forceinline__ float WeightFloat(float x, float weight) {
  return Step<kSteps>(__fmul_rn(Step<kSteps>(x), weight));
}

// Turns the pair (a, b).
__device__ __forceinline__ float2 Rotate(float a, float b, float cos, float sin) {
  return {__fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin)),
          __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin))};
}

// The same with every product rounded, and cos and sin before.
template <bool kSteps>
__device__ __forceinline__ float2 RotateInSteps(float a, float b, float cos, float sin) {
  const float c = Step<kSteps>(cos);
  const float s = Step<kSteps>(sin);
  return {__fsub_rn(Step<kSteps>(__fmul_rn(a, c)), Step<kSteps>(__fmul_rn(b, s))),
          __fadd_rn(Step<kSteps>(__fmul_rn(b, c)), Step<kSteps>(__fmul_rn(a, s)))};
}

// silu(gate) * up
template <bool kSteps>
__device__ __forceinline__ uint32_t SiluMul(uint32_t gate, uint32_t up) {
  return WeightPair<kSteps>(Silu(Low(gate)), Silu(High(gate)), up);
}

// negative + scale (cond - negative)
template <bool kSteps>
__device__ __forceinline__ float Combine(float cond, float negative, float scale) {
  const float difference = Step<kSteps>(__fsub_rn(cond, negative));
  return Step<kSteps>(__fadd_rn(negative, Step<kSteps>(__fmul_rn(scale, difference))));
}

// ||cond|| / ||comb|| from the sums of squares; 0 where comb is 0.
template <bool kSteps>
__device__ __forceinline__ float NormRatio(float cond_squares, float comb_squares) {
  const float cond = Step<kSteps>(__fsqrt_rn(cond_squares));
  const float comb = Step<kSteps>(__fsqrt_rn(comb_squares));
  return comb == 0.0f ? 0.0f : Step<kSteps>(__fdiv_rn(cond, comb));
}

// x + dt * v
template <bool kSteps>
__device__ __forceinline__ float EulerStep(float x, float v, float dt) {
  return __fadd_rn(x, Step<kSteps>(__fmul_rn(Step<kSteps>(dt), v)));
}

__device__ __forceinline__ bool IsFinite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

}  // namespace segue::kernels::device
