// The order in which a row's elements are added, the same in every kernel, so that a fused kernel
// and a plain one give the same bits and a row's bits depend on nothing but the row:
//
//   a vector, 8 neighbours, from its first element to its last, starting at +0;
//   a chunk, 32 neighbouring vectors, as a butterfly over distances 1, 2, 4, 8, 16;
//   chunk c goes to slot c mod 32, in ascending c, and the 32 slots by the same butterfly.
//
// What a row does not have counts as +0, which changes no sum: none is ever -0. So the vectors of a
// short row need a butterfly over as many lanes only.
#pragma once

#include "kernels/cuda/device/bf16.h"

namespace segue::kernels::device {

inline constexpr int kSumLanes = 32;
inline constexpr int kChunk = kSumLanes * kVector;
// The longest row with one chunk a slot.
inline constexpr int kMaxSlotsRow = kSumLanes * kChunk;

// Over groups of `lanes` (a power of two) neighbouring lanes; all get the sum. Called by whole
// warps.
__device__ __forceinline__ float LaneSum(float value, int lanes = kSumLanes) {
#pragma unroll
  for (int distance = 1; distance < kSumLanes; distance *= 2) {
    if (distance < lanes) {
      value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
  }
  return value;
}

// The sums over a warp of several values at once, each as LaneSum: lane l gets that of value
// l mod kCount. At the first distances a lane passes on what it does not keep.
template <int kCount>
__device__ __forceinline__ float LaneSums(const float (&values)[kCount]) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  float kept[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) kept[i] = values[i];
#pragma unroll
  for (int distance = 1; distance < kSumLanes; distance *= 2) {
    const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < (distance < kCount ? kCount / distance / 2 : 1); ++i) {
      float passed = kept[i];
      if (distance < kCount) {
        passed = upper ? kept[2 * i] : kept[2 * i + 1];
        kept[i] = upper ? kept[2 * i + 1] : kept[2 * i];
      }
      kept[i] = __fadd_rn(kept[i], __shfl_xor_sync(0xffffffffu, passed, distance));
    }
  }
  return kept[0];
}

// next(sum, x) over a vector.
template <class Next>
__device__ __forceinline__ float VectorSum(const Floats& x, Next next) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum = next(sum, x.at[i]);
  return sum;
}

// What rows are summed of.
struct Plain {
  __device__ __forceinline__ float operator()(float sum, float x) const {
    return __fadd_rn(sum, x);
  }
};
struct Square {
  __device__ __forceinline__ float operator()(float sum, float x) const {
    return __fmaf_rn(x, x, sum);
  }
};
struct SquareAround {
  float mean;
  __device__ __forceinline__ float operator()(float sum, float x) const {
    const float distance = __fsub_rn(x, mean);
    return __fmaf_rn(distance, distance, sum);
  }
};

// One warp adds up a row: next(sum, at(i)) over i in [0, count).
template <class Next, class At>
__device__ __forceinline__ float WarpRowSum(int64_t count, Next next, At at) {
  const int lane = static_cast<int>(threadIdx.x % kSumLanes);
  float slot = 0.0f;
  for (int64_t chunk = 0; chunk * kChunk < count; ++chunk) {
    const int64_t first = chunk * kChunk + lane * kVector;
    float sum = 0.0f;
    for (int64_t i = first; i < first + kVector && i < count; ++i) sum = next(sum, at(i));
    sum = LaneSum(sum);
    if (lane == chunk % kSumLanes) slot = __fadd_rn(slot, sum);
  }
  return LaneSum(slot);
}

// A CTA adds up a row of at most kMaxSlotsRow elements: thread t of T holds the sums of the vectors
// t, t + T, t + 2 T, ..., 0 where there is none. All threads get the sum. `slots`: shared memory
// [kSumLanes] that nothing else uses before the next barrier. T is a multiple of 32, and T x
// kVectors at most 32 x 32.
template <int kVectors>
__device__ __forceinline__ float CtaRowSum(const float (&sums)[kVectors], float* slots) {
  const int lane = static_cast<int>(threadIdx.x % kSumLanes);
  const int warp = static_cast<int>(threadIdx.x / kSumLanes);
  const int warps = static_cast<int>(blockDim.x / kSumLanes);
  const float sum = LaneSums(sums);
  if (lane < kVectors) slots[lane * warps + warp] = sum;
  __syncthreads();
  return LaneSum(lane < kVectors * warps ? slots[lane] : 0.0f);
}

}  // namespace segue::kernels::device
