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

// Turns scores s into 2^(c s - c m), m being the row's maximum so far or up to kMaximumSlack below
// it, and updates the state. rescale[r] is what earlier outputs of the row must be multiplied by,
// exactly 1 where m stays. Where all scores so far are -inf the weights are 0. c = softmax scale x
// log2(e), which is greater than 0; slack = kMaximumSlack / c.
template <int kScores>
__device__ __forceinline__ void SoftmaxTile(float (&scores)[kScores], float c, float slack,
                                            SoftmaxState& state, float (&rescale)[2]) {
  // Eight chains of maxima hide each other's latency; the sums lie under the exponentials.
  float found[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) found[i / 4][i % 4] = kNegativeInfinity;
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    float& chain = found[i / 2 % 2][i / 4 % 2 * 2 + i % 2];
    chain = fmaxf(chain, scores[i]);
  }
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float largest =
        QuadMax(fmaxf(fmaxf(found[r][0], found[r][1]), fmaxf(found[r][2], found[r][3])));
    const float before = state.maximum[r];
    const bool moves = largest > before + slack;
    const float maximum = moves ? largest : before;
    base[r] = maximum == kNegativeInfinity ? 0.0f : maximum * c;
    rescale[r] = moves ? Exp2(fmaf(before, c, -base[r])) : 1.0f;
    state.maximum[r] = maximum;
  }
  float sum[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    scores[i] = Exp2(fmaf(scores[i], c, -base[i / 2 % 2]));
    sum[i / 2 % 2][i % 2] += scores[i];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.sum[r] = fmaf(state.sum[r], rescale[r], sum[r][0] + sum[r][1]);
  }
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
