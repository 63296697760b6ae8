// Online softmax over tiles of scores in wgmma accumulator registers.
//
// A thread of a warpgroup holds two rows, lane / 4 and lane / 4 + 8 of its warp's sixteen, and of
// every 8 columns j the pair 8 j + 2 (lane % 4) + {0, 1}: scores[4 j + 2 r + i] is row r, column i.
#pragma once

#include "kernels/cuda/device/ptx.h"
#include "kernels/cuda/device/reduce.h"

namespace segue::kernels::device {

inline constexpr float kNegativeInfinity = -__builtin_huge_valf();

// Of the thread's two rows. The maximum is of raw scores, equal in the four lanes of a row; the sum
// is of this lane's own columns until the end.
struct SoftmaxState {
  float maximum[2] = {kNegativeInfinity, kNegativeInfinity};
  float sum[2] = {0.0f, 0.0f};
};

// How far a maximum may be exceeded before it moves, in powers of two. Weights then reach 2^8 and
// sums 2^8 times the number of keys, far inside float and float16, whose relative rounding does not
// depend on the scale; and outputs need hardly ever be rescaled after the first tile.
inline constexpr float kMaximumSlack = 8.0f;

// One tile's part of a row's softmax, in three steps: SoftmaxMaximum, SoftmaxWeights over all
// scores, SoftmaxFinish. Apart, so that a wait for products can lie between the halves of the
// second.
struct SoftmaxStep {
  float base[2];     // c m, or 0 while all scores are -inf
  float rescale[2];  // what earlier outputs of the row are multiplied by, exactly 1 where m stays
  float sum[2][2];   // of weights so far, this tile's in even and odd columns apart
};

// Finds m, the row's maximum so far or up to kMaximumSlack below it. c = softmax scale x log2(e),
// which is greater than 0; slack = kMaximumSlack / c.
template <int kScores>
__device__ __forceinline__ void SoftmaxMaximum(const float (&scores)[kScores], float c, float slack,
                                               SoftmaxState& state, SoftmaxStep& step) {
  // Two chains a row hide each other's latency.
  float found[2][2] = {{kNegativeInfinity, kNegativeInfinity},
                       {kNegativeInfinity, kNegativeInfinity}};
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    found[i / 2 % 2][i % 2] = fmaxf(found[i / 2 % 2][i % 2], scores[i]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float largest = QuadMax(fmaxf(found[r][0], found[r][1]));
    const float before = state.maximum[r];
    const bool moves = largest > before + slack;
    const float maximum = moves ? largest : before;
    step.base[r] = maximum == kNegativeInfinity ? 0.0f : maximum * c;
    step.rescale[r] = moves ? Exp2(fmaf(before, c, -step.base[r])) : 1.0f;
    step.sum[r][0] = state.sum[r] * step.rescale[r];
    step.sum[r][1] = 0.0f;
    state.maximum[r] = maximum;
  }
}

// Turns scores s of columns kFrom / 4 x 8 on into weights 2^(c s - c m); 0 for -inf.
template <int kFrom, int kTo, int kScores>
__device__ __forceinline__ void SoftmaxWeights(float (&scores)[kScores], float c,
                                               SoftmaxStep& step) {
#pragma unroll
  for (int i = kFrom; i < kTo; ++i) {
    scores[i] = Exp2(fmaf(scores[i], c, -step.base[i / 2 % 2]));
    step.sum[i / 2 % 2][i % 2] += scores[i];
  }
}

__device__ __forceinline__ void SoftmaxFinish(const SoftmaxStep& step, SoftmaxState& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) state.sum[r] = step.sum[r][0] + step.sum[r][1];
}

// The scores as the A operand of the P V product: four registers for every 16 columns.
template <class Element, int kScores>
__device__ __forceinline__ void PackWeights(const float (&scores)[kScores],
                                            uint32_t (&packed)[kScores / 2]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) {
    packed[i] = Element::Pack(scores[2 * i], scores[2 * i + 1]);
  }
}

}  // namespace segue::kernels::device
