// Elementary functions, written once over a vector type so that every implementation of an
// operation gives the same bits.
//
// `Isa` names a register width: Scalar below for the references, cpu/simd_*.h for the fast
// operations. Each function is a fixed sequence of IEEE operations (fused multiply-adds only where
// Fma is written), so a lane's result depends on its own input alone. All of them are forced
// inline: a copy compiled for one instruction set must never be linked into code for another.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/activation.h"
#include "kernels/registry.h"

#define SEGUE_INLINE inline __attribute__((always_inline))

namespace segue::kernels {

struct Scalar {
  using V = float;
  static constexpr int kLanes = 1;
  static SEGUE_INLINE V Set(float value) { return value; }
  static SEGUE_INLINE V Fma(V a, V b, V c) { return std::fma(a, b, c); }
  // As the x86 instructions: the second operand if either is a NaN.
  static SEGUE_INLINE V Max(V a, V b) { return a > b ? a : b; }
  static SEGUE_INLINE V Min(V a, V b) { return a < b ? a : b; }
  // 2^n for t = kRoundMagic + n, n an integer in [-126, 127].
  static SEGUE_INLINE V Pow2(V t) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(t) << 23) + 0x3f800000u);
  }
  static SEGUE_INLINE V RoundBF16(V value) { return RoundToBF16(value); }
  // `less` where a < b, else `other`; a NaN compares false.
  static SEGUE_INLINE V WhereLess(V a, V b, V less, V other) { return a < b ? less : other; }
};

// 1.5 * 2^23: adding it rounds a float of magnitude below 2^22 to an integer (ties to even) and
// leaves that integer in the low mantissa bits.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr float kLog2E = 1.44269504088896341f;
// ln 2 split so that n * kLn2High is exact for |n| < 2^9 (Cody and Waite).
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;

// e^r for |r| <= ln(2)/2: the minimax polynomial of Cephes' expf, error below 1 ulp.
template <class Isa>
SEGUE_INLINE typename Isa::V ExpReduced(typename Isa::V r) {
  using V = typename Isa::V;
  V p = Isa::Set(1.9875691500e-4f);
  p = Isa::Fma(p, r, Isa::Set(1.3981999507e-3f));
  p = Isa::Fma(p, r, Isa::Set(8.3334519073e-3f));
  p = Isa::Fma(p, r, Isa::Set(4.1665795894e-2f));
  p = Isa::Fma(p, r, Isa::Set(1.6666665459e-1f));
  p = Isa::Fma(p, r, Isa::Set(5.0000001201e-1f));
  return Isa::Fma(p, r * r, r) + Isa::Set(1.0f);
}

// e^x: infinity above 88.73, 0 below -104, a NaN stays one.
template <class Isa>
SEGUE_INLINE typename Isa::V Exp(typename Isa::V x) {
  using V = typename Isa::V;
  const V magic = Isa::Set(kRoundMagic);
  x = Isa::Max(Isa::Set(-105.0f), Isa::Min(Isa::Set(89.0f), x));
  const V n = Isa::Fma(x, Isa::Set(kLog2E), magic) - magic;
  V r = Isa::Fma(n, Isa::Set(-kLn2High), x);
  r = Isa::Fma(n, Isa::Set(-kLn2Low), r);
  // 2^n in two factors: n itself may lie outside the exponents of normal numbers.
  const V half = n * Isa::Set(0.5f) + magic;
  const V rest = (n - (half - magic)) + magic;
  return ExpReduced<Isa>(r) * Isa::Pow2(half) * Isa::Pow2(rest);
}

// e^x for x <= 0, cheaper: results below the smallest normal number, e^-87.3, are given as 0.
template <class Isa>
SEGUE_INLINE typename Isa::V ExpOfNonPositive(typename Isa::V x) {
  using V = typename Isa::V;
  const V magic = Isa::Set(kRoundMagic);
  const V lowest = Isa::Set(-87.25f);
  const V clamped = Isa::Max(lowest, x);
  const V t = Isa::Fma(clamped, Isa::Set(kLog2E), magic);
  const V n = t - magic;
  V r = Isa::Fma(n, Isa::Set(-kLn2High), clamped);
  r = Isa::Fma(n, Isa::Set(-kLn2Low), r);
  return Isa::WhereLess(x, lowest, Isa::Set(0.0f), ExpReduced<Isa>(r) * Isa::Pow2(t));
}

// x / (1 + e^-x)
template <class Isa>
SEGUE_INLINE typename Isa::V Silu(typename Isa::V x) {
  return x / (Isa::Set(1.0f) + Exp<Isa>(Isa::Set(0.0f) - x));
}

// 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + e^-2u): the same function
// without the cancellation of 1 + tanh for negative x.
template <class Isa>
SEGUE_INLINE typename Isa::V GeluTanh(typename Isa::V x) {
  using V = typename Isa::V;
  constexpr float kMinusTwoSqrtTwoOverPi = -1.5957691216057308f;
  const V cubic = Isa::Fma(x * x, Isa::Set(0.044715f), Isa::Set(1.0f)) * x;
  return x / (Isa::Set(1.0f) + Exp<Isa>(cubic * Isa::Set(kMinusTwoSqrtTwoOverPi)));
}

template <class Isa>
SEGUE_INLINE typename Isa::V ApplyActivation(typename Isa::V x, Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
      return GeluTanh<Isa>(x);
    case Activation::kSilu:
      return Silu<Isa>(x);
    case Activation::kNone:
      break;
  }
  return x;
}

// The value as it reaches memory under `rounding`.
template <class Isa>
SEGUE_INLINE typename Isa::V Round(typename Isa::V value, Rounding rounding) {
  return rounding == Rounding::kNone ? value : Isa::RoundBF16(value);
}

// A value within an operation, where the reference writes a tensor and the operation does not.
template <class Isa>
SEGUE_INLINE typename Isa::V RoundStep(typename Isa::V value, Rounding rounding) {
  return rounding == Rounding::kBF16 ? Isa::RoundBF16(value) : value;
}

// Of a step of a chain as of a whole operation.
SEGUE_INLINE constexpr Rounding StepRounding(Rounding rounding) {
  return rounding == Rounding::kBF16 ? Rounding::kBF16 : Rounding::kNone;
}

// Sums over a row are taken in this many lanes: lane j adds the elements j, j + 16, j + 32, ... in
// that order, then lane j takes lane j + 8, then j + 4, j + 2, j + 1. 16 floats are one AVX-512
// register and two AVX2 ones, so each instruction set sums in the same order.
inline constexpr int kSumLanes = 16;

// Runs `sum = next(sum, i)` for i in [0, count) on the lanes' running sums, then adds the lanes.
template <class Next>
float LaneSum(int64_t count, Next next) {
  float lanes[kSumLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    float& lane = lanes[i % kSumLanes];
    lane = next(lane, i);
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace segue::kernels
