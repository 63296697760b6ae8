// Query and key heads, normalised and turned in place: a CTA a row, a group of lanes a head.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/grid_order.h"
#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kMaxThreads = 192;  // 24 heads of 128, queries and keys, in one round
constexpr int32_t kCtasPerSm = 5;     // 64 registers
constexpr int32_t kVectorsPerThread = 4;

struct HeadsPart {
  uint16_t* data;  // null: not wanted
  int64_t stride;
  const uint16_t* weight;
};

struct HeadsRows {
  HeadsPart q;
  HeadsPart k;
  const int32_t* position;
  int32_t slots;  // of one part: heads x group
};

struct HeadsArguments {
  HeadsRows streams[kMaxHeadsStreams];
  uint32_t first_rows;  // of the first stream; the rest are the second's
  int32_t group;        // lanes of a head: its vectors, rounded up to a power of two
  int32_t head_dim;
  float inverse_dim;  // 1 / head_dim
  Rope rope;
  float eps;
};

// The 4 pairs of a vector, normalised and turned.
template <bool kSteps>
__device__ __forceinline__ uint4 TurnVector(const device::Floats& x, float inverse, uint4 weight,
                                            float4 cos, float4 sin) {
  const float cosines[] = {cos.x, cos.y, cos.z, cos.w};
  const float sines[] = {sin.x, sin.y, sin.z, sin.w};
  uint4 y;
#pragma unroll
  for (int k = 0; k < device::kPairs; ++k) {
    const float2 pair = device::WeightFloats<kSteps>(__fmul_rn(x.at[2 * k], inverse),
                                                     __fmul_rn(x.at[2 * k + 1], inverse),
                                                     device::PairAt(weight, k));
    const float2 turned = device::Rotate(pair.x, pair.y, cosines[k], sines[k]);
    device::PairAt(y, k) = device::BFloat16::Pack(turned.x, turned.y);
  }
  return y;
}

// kGroup: lanes of a head, or 0 where they are an argument. Slots are numbered through the heads of
// q, then of k, `group` a head; thread t works on the slots t, t + T, ..., all of them vector
// t % group of their heads, which therefore turn by the same angles.
template <int kGroup, bool kSteps>
__global__ void __launch_bounds__(kMaxThreads, kCtasPerSm)
    HeadsKernel(const __grid_constant__ HeadsArguments arguments) {
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const bool second = blockIdx.x >= arguments.first_rows;
  const HeadsRows& rows = arguments.streams[second ? 1 : 0];
  const int64_t row = blockIdx.x - (second ? arguments.first_rows : 0);
  const int32_t group = kGroup == 0 ? arguments.group : kGroup;
  const int32_t vector = static_cast<int32_t>(threadIdx.x) % group;
  const bool there = vector * device::kVector < arguments.head_dim;
  const int32_t q_slots = rows.q.data == nullptr ? 0 : rows.slots;
  const int32_t slots = q_slots + rows.slots;
  const int32_t step = static_cast<int32_t>(blockDim.x);
  uint16_t* q = rows.q.data + row * rows.q.stride;
  uint16_t* k = rows.k.data + row * rows.k.stride;

  const int64_t position = Clamped(__ldg(rows.position + row), arguments.rope.positions);
  // In float4: the angles of a vector's 4 pairs.
  const int64_t angle = position * (arguments.head_dim / device::kVector) + vector;

  // Whole warps stay together: lanes behind the last slot take part in the sums.
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for (int32_t base = static_cast<int32_t>(threadIdx.x) - lane; base < slots;
       base += step * kVectorsPerThread) {
    const int32_t first = base + lane;
    uint16_t* at[kVectorsPerThread];
    uint4 packed[kVectorsPerThread];
#pragma unroll
    for (int i = 0; i < kVectorsPerThread; ++i) {
      const int32_t slot = first + i * step;
      const bool of_q = slot < q_slots;
      const int32_t head = (of_q ? slot : slot - q_slots) / group;
      at[i] = (of_q ? q : k) + head * arguments.head_dim + vector * device::kVector;
      packed[i] = {0, 0, 0, 0};
      if (there && slot < slots) packed[i] = device::LoadOnce(at[i]);
    }
    float4 cos = {};
    float4 sin = {};
    uint4 q_weight = {};
    uint4 k_weight = {};
    if (there) {
      cos = __ldg(reinterpret_cast<const float4*>(arguments.rope.cos) + angle);
      sin = __ldg(reinterpret_cast<const float4*>(arguments.rope.sin) + angle);
      k_weight = __ldg(reinterpret_cast<const uint4*>(rows.k.weight) + vector);
      if (q_slots != 0) q_weight = __ldg(reinterpret_cast<const uint4*>(rows.q.weight) + vector);
    }
#pragma unroll
    for (int i = 0; i < kVectorsPerThread; ++i) {
      const int32_t slot = first + i * step;
      const device::Floats x = device::Widen(packed[i]);
      const float squares = device::LaneSum(device::VectorSum(x, device::Square{}), group);
      const float inverse = device::InverseDeviation(squares, arguments.inverse_dim, arguments.eps);
      const uint4 turned =
          TurnVector<kSteps>(x, inverse, slot < q_slots ? q_weight : k_weight, cos, sin);
      if (there && slot < slots) *reinterpret_cast<uint4*>(at[i]) = turned;
    }
  }
}

// A pair of vectors, one of each half of a head.
template <bool kSteps>
__global__ void RopeHalfKernel(Matrix x, int32_t head_dim, Rope rope) {
  const int32_t half = head_dim / 2;
  const auto row_items = static_cast<uint32_t>(x.cols / 2 / device::kVector);
  const auto head_items = static_cast<uint32_t>(half / device::kVector);
  const int64_t row = ItemIndex() / row_items;
  if (row >= x.rows) return;
  const auto item = static_cast<uint32_t>(ItemIndex() % row_items);
  const uint32_t first = item % head_items * device::kVector;
  uint16_t* low = x.Row(row) + item / head_items * head_dim + first;
  uint16_t* high = low + half;
  device::Floats a = device::Widen(device::LoadOnce(low));
  device::Floats b = device::Widen(device::LoadOnce(high));
  const float* cos = rope.cos + rope.RowFor(row) * half + first;
  const float* sin = rope.sin + rope.RowFor(row) * half + first;
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) {
    const float2 turned =
        device::RotateInSteps<kSteps>(a.at[i], b.at[i], __ldg(cos + i), __ldg(sin + i));
    a.at[i] = turned.x;
    b.at[i] = turned.y;
  }
  *reinterpret_cast<uint4*>(low) = device::Narrow(a);
  *reinterpret_cast<uint4*>(high) = device::Narrow(b);
}

HeadsPart PartOf(const MatrixView& view, const WeightView& weight) {
  return {static_cast<uint16_t*>(view.data), view.stride,
          static_cast<const uint16_t*>(weight.data)};
}

}  // namespace

Status PrepareHeads(const HeadsParams& params, const Context& context) {
  HeadsArguments arguments = {.head_dim = params.head_dim,
                              .inverse_dim = 1.0f / static_cast<float>(params.head_dim),
                              .rope = RopeOf(params.rope),
                              .eps = params.eps};
  arguments.group = 1;
  while (arguments.group * device::kVector < params.head_dim) arguments.group *= 2;
  int64_t rows = 0;
  int64_t slots = 0;
  for (size_t i = 0; i < params.streams.size(); ++i) {
    const HeadsStream& stream = params.streams[i];
    const int64_t heads = stream.k.cols / params.head_dim;
    arguments.streams[i] = {.q = PartOf(stream.q, stream.q_weight),
                            .k = PartOf(stream.k, stream.k_weight),
                            .position = stream.position,
                            .slots = static_cast<int32_t>(heads * arguments.group)};
    rows += stream.k.rows;
    if (i == 0) arguments.first_rows = static_cast<uint32_t>(rows);
    slots = std::max(slots, 2 * heads * arguments.group);
  }
  if (rows == 0 || slots == 0) return {};
  const int64_t warps = CeilDiv(CeilDiv(slots, kVectorsPerThread), 32);
  const auto threads = static_cast<int32_t>(std::min<int64_t>(32 * warps, kMaxThreads));
  return WithSteps(params.rounding, [&](auto steps) {
    const auto kernel = arguments.group == 16 ? HeadsKernel<16, steps()> : HeadsKernel<0, steps()>;
    return Enqueue("prepare_heads", kernel, {rows, threads, context.stream, true}, arguments);
  });
}

Status RopeHalf(const RopeHalfParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("rope_half", RopeHalfKernel<steps()>,
                        params.x.rows * (params.x.cols / 2 / device::kVector), context,
                        MatrixOf(params.x), params.head_dim, RopeOf(params.rope));
  });
}

}  // namespace segue::kernels::cuda
