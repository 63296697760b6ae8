// The end of a work item in the sm90 attention kernel: from accumulators to rows in memory.
#pragma once

#include "kernels/cuda/attention/config.h"
#include "kernels/cuda/device/softmax.h"

namespace segue::kernels::sm90 {

// What output rows are still to be divided by, and their log-sum-exp.
struct Weighted {
  const device::SoftmaxState& state;
  float scale_log2;
};

// Divides by the sums and writes the warp's valid rows, 16 bytes a lane, through its own piece of
// shared memory.
template <class C>
__device__ __forceinline__ void StoreOutput(const TileWork& work, uint8_t* own_rows,
                                            const Weighted& weighted,
                                            const float (&output)[C::kHeadDim / 2]) {
  const int32_t lane = threadIdx.x % 32;
  const int32_t warp_row = 16 * (threadIdx.x / 32 - 4);
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = device::QuadSum(weighted.state.sum[r]);
    inverse[r] = sum == 0.0f ? 0.0f : 1.0f / sum;
    const int32_t row = warp_row + lane / 4 + 8 * r;
    if (work.lse != nullptr && lane % 4 == 0 && row < work.rows) {
      constexpr float kLn2 = 0.693147180559945f;
      const float log2_sum =
          fmaf(weighted.state.maximum[r], weighted.scale_log2, device::Log2(sum));
      work.lse[row] = sum == 0.0f ? device::kNegativeInfinity : log2_sum * kLn2;
    }
  }
  const uint32_t own = device::SharedAddress(own_rows);
  uint8_t* rows = static_cast<uint8_t*>(work.output) + warp_row * work.row_stride;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    device::RandomDelay();
    // Rows of 128 bytes, their 16-byte pieces exchanged by the row's low bits: no bank conflicts
    // either way.
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t matrices[4];  // rows 0..7 and 8..15 of 8 columns, then of the next 8
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float* pair = output + half * 32 + 4 * j + 2 * m;
        const bool seen = inverse[m % 2] != 0.0f;
        matrices[m] = C::Element::Pack(seen ? pair[0] * inverse[m % 2] : 0.0f,
                                       seen ? pair[1] * inverse[m % 2] : 0.0f);
      }
      const int32_t row = lane % 16;
      const int32_t piece = j + lane / 16;
      device::StoreMatrices(own + row * C::kRowBytes + (piece ^ (row % 8)) * 16, matrices);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t row = 4 * i + lane / 8;
      const int32_t piece = lane % 8;
      const uint4 value =
          device::LoadShared128(own + row * C::kRowBytes + (piece ^ (row % 8)) * 16);
      if (warp_row + row < work.rows) {
        *reinterpret_cast<uint4*>(rows + row * work.row_stride + half * C::kRowBytes + piece * 16) =
            value;
      }
    }
  }
}

}  // namespace segue::kernels::sm90
