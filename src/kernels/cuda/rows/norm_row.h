// One row of gated residual, normalisation and modulation, by a CTA that holds it in registers.
// What reads the branch from memory and what sums it over ranks do the same with it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/views.h"
#include "kernels/modulated_norm.h"

namespace segue::kernels::cuda {

inline constexpr int32_t kNormVectorsPerThread = 2;
inline constexpr int32_t kMaxNormThreads = 512;
static_assert(kNormVectorsPerThread * kMaxNormThreads * device::kVector == device::kMaxSlotsRow);

struct NormStream {
  uint16_t* branch;  // null: none
  int64_t branch_stride;
  Table gate;
  uint16_t* h;
  int64_t h_stride;
  Table scale;
  Table shift;
  uint16_t* y;
  int64_t y_stride;
};

// Of every row.
struct NormShape {
  int32_t vectors;
  float inverse_count;  // 1 / elements
  float eps;
};

__device__ __forceinline__ uint4 LoadTable(const uint16_t* row, int32_t vector) {
  return __ldg(reinterpret_cast<const uint4*>(row) + vector);
}
__device__ __forceinline__ uint4* VectorAt(uint16_t* row, int32_t vector) {
  return reinterpret_cast<uint4*>(row) + vector;
}

// The vectors of thread t of T are t, t + T, ...; this is number i of them.
__device__ __forceinline__ int32_t Own(int i) {
  return static_cast<int32_t>(threadIdx.x + i * blockDim.x);
}

using NormVectors = uint4[kNormVectorsPerThread];
using NormSlots = float[2][device::kSumLanes];  // shared memory

// From x = h and, where `gated`, the branch: h += gate * branch, y = LN(h) * (1 + scale) + shift.
// What lies beyond the row is 0 in x.
template <bool kSteps>
__device__ __forceinline__ void FinishNormRow(const NormStream& stream, const NormShape& shape,
                                              int64_t row, bool gated, NormVectors& x,
                                              const NormVectors& branch, NormSlots& slots) {
  // Which rows of the tables: read while the row is on its way.
  const uint16_t* gate_row = gated ? stream.gate.For(row) : nullptr;
  const uint16_t* scale_row = stream.scale.For(row);
  const uint16_t* shift_row = stream.shift.For(row);
  float sums[kNormVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    if (gated && Own(i) < shape.vectors) {
      const uint4 gate = LoadTable(gate_row, Own(i));
#pragma unroll
      for (int j = 0; j < device::kPairs; ++j) {
        uint32_t& pair = device::PairAt(x[i], j);
        pair = device::GateResidual<kSteps>(pair, device::PairAt(gate, j),
                                            device::PairAt(branch[i], j));
      }
      *VectorAt(stream.h + row * stream.h_stride, Own(i)) = x[i];
    }
    sums[i] = device::VectorSum(device::Widen(x[i]), device::Plain{});
  }
  const float mean = __fmul_rn(device::CtaRowSum(sums, slots[0]), shape.inverse_count);
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    sums[i] = device::VectorSum(device::Widen(x[i]), device::SquareAround{mean});
    if (Own(i) >= shape.vectors) sums[i] = 0.0f;
  }
  const float inverse =
      device::InverseDeviation(device::CtaRowSum(sums, slots[1]), shape.inverse_count, shape.eps);
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    if (Own(i) >= shape.vectors) continue;
    const uint4 scale = LoadTable(scale_row, Own(i));
    const uint4 shift = LoadTable(shift_row, Own(i));
#pragma unroll
    for (int j = 0; j < device::kPairs; ++j) {
      uint32_t& pair = device::PairAt(x[i], j);
      pair = device::Modulate<kSteps>(device::Normalize(device::Low(pair), mean, inverse),
                                      device::Normalize(device::High(pair), mean, inverse),
                                      device::PairAt(scale, j), device::PairAt(shift, j));
    }
    *VectorAt(stream.y + row * stream.y_stride, Own(i)) = x[i];
  }
}

// Of a CTA for rows of so many vectors.
inline int32_t NormThreads(int32_t vectors) {
  return static_cast<int32_t>(CeilDiv(CeilDiv(vectors, kNormVectorsPerThread), 32) * 32);
}

inline NormStream NormStreamOf(const ModulatedNormStream& stream) {
  const bool gated = stream.branch.data != nullptr;
  return {.branch = static_cast<uint16_t*>(stream.branch.data),
          .branch_stride = stream.branch.stride,
          .gate = gated ? TableOf(stream.gate) : Table{},
          .h = static_cast<uint16_t*>(stream.h.data),
          .h_stride = stream.h.stride,
          .scale = TableOf(stream.scale),
          .shift = TableOf(stream.shift),
          .y = static_cast<uint16_t*>(stream.y.data),
          .y_stride = stream.y.stride};
}

inline NormShape NormShapeOf(int64_t cols, float eps) {
  return {static_cast<int32_t>(cols / device::kVector), 1.0f / static_cast<float>(cols), eps};
}

}  // namespace segue::kernels::cuda
