// Walking along the columns of a row, a register at a time.
//
// Included only by files compiled for one instruction set.
#pragma once

#include <cstdint>

#include "kernels/check.h"
#include "kernels/math.h"

namespace segue::kernels::cpu {

// How the body of ForColumns reaches memory: whole registers, or the last `count` elements.
template <class Isa>
struct Whole {
  using V = typename Isa::V;
  SEGUE_INLINE V Load(const float* p) const { return Isa::Load(p); }
  SEGUE_INLINE V LoadTwice(const float* p) const { return Isa::LoadTwice(p); }
  SEGUE_INLINE void Store(float* p, V v) const { Isa::Store(p, v); }
};

template <class Isa>
struct Partial {
  using V = typename Isa::V;
  int64_t count;
  SEGUE_INLINE V Load(const float* p) const { return Isa::LoadPartial(p, count); }
  SEGUE_INLINE V LoadTwice(const float* p) const { return Isa::LoadTwicePartial(p, count / 2); }
  SEGUE_INLINE void Store(float* p, V v) const { Isa::StorePartial(p, count, v); }
};

// body(access, i) for i = 0, kLanes, 2 kLanes, ...
template <class Isa, class Body>
SEGUE_INLINE void ForColumns(int64_t cols, Body body) {
  int64_t i = 0;
  for (; i + Isa::kLanes <= cols; i += Isa::kLanes) body(Whole<Isa>{}, i);
  if (i < cols) body(Partial<Isa>{cols - i}, i);
}

// math.h's LaneSum: next(access, sum, i) adds the elements at i to a register of running sums.
// Lanes behind the last element read as zeros and must leave the sum as it is.
template <class Isa, class Next>
SEGUE_INLINE float SumColumns(int64_t cols, Next next) {
  constexpr int kRegisters = kSumLanes / Isa::kLanes;
  typename Isa::V sums[kRegisters];
  for (auto& sum : sums) sum = Isa::Zero();
  int64_t i = 0;
  for (; i + kSumLanes <= cols; i += kSumLanes) {
    for (int r = 0; r < kRegisters; ++r) {
      sums[r] = next(Whole<Isa>{}, sums[r], i + r * Isa::kLanes);
    }
  }
  for (int r = 0; r < kRegisters && i < cols; ++r, i += Isa::kLanes) {
    const int64_t left = cols - i;
    sums[r] =
        left >= Isa::kLanes ? next(Whole<Isa>{}, sums[r], i) : next(Partial<Isa>{left}, sums[r], i);
  }
  return Isa::SumLanes(sums);
}

template <class Isa>
SEGUE_INLINE float SumOfSquares(const float* x, int64_t cols) {
  return SumColumns<Isa>(cols, [x](auto access, typename Isa::V sum, int64_t i) {
    const auto value = access.Load(x + i);
    return Isa::Fma(value, value, sum);
  });
}

// A float32 copy of a weight vector.
template <class Isa>
void Widen(const WeightView& weight, int64_t count, float* out) {
  const auto* halves = static_cast<const uint16_t*>(weight.data);
  int64_t i = 0;
  for (; i + Isa::kLanes <= count; i += Isa::kLanes) {
    if (weight.dtype == DType::kBF16) {
      Isa::Store(out + i, Isa::LoadBF16(halves + i));
    } else if (weight.dtype == DType::kF16) {
      Isa::Store(out + i, Isa::LoadF16(halves + i));
    } else {
      Isa::Store(out + i, Isa::Load(static_cast<const float*>(weight.data) + i));
    }
  }
  for (; i < count; ++i) out[i] = WeightAt(weight, i);
}

}  // namespace segue::kernels::cpu
