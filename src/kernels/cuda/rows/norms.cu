// Gated residual, normalisation and modulation in one pass over a row: a CTA a row, whose elements
// stay in registers from the load to the last store.
#include <cuda_runtime.h>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/grid_order.h"
#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kVectorsPerThread = 2;
constexpr int32_t kMaxThreads = 512;
static_assert(kVectorsPerThread * kMaxThreads * device::kVector == device::kMaxSlotsRow);

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

struct NormArguments {
  NormStream streams[kMaxNormStreams];
  uint32_t first_rows;  // of the first stream; the rest are the second's
  int32_t vectors;      // of a row
  float inverse_count;  // 1 / elements of a row
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

template <bool kSteps>
__global__ void __launch_bounds__(kMaxThreads)
    ModulatedNormKernel(const __grid_constant__ NormArguments arguments) {
  __shared__ float slots[2][device::kSumLanes];
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const bool second = blockIdx.x >= arguments.first_rows;
  const NormStream& stream = arguments.streams[second ? 1 : 0];
  const int64_t row = blockIdx.x - (second ? arguments.first_rows : 0);
  uint16_t* h = stream.h + row * stream.h_stride;
  const bool gated = stream.branch != nullptr;

  uint4 x[kVectorsPerThread];
  uint4 branch[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    x[i] = {0, 0, 0, 0};
    if (Own(i) >= arguments.vectors) continue;
    x[i] = device::LoadOnce(VectorAt(h, Own(i)));
    if (!gated) continue;
    branch[i] = device::LoadOnce(VectorAt(stream.branch + row * stream.branch_stride, Own(i)));
  }

  // Which rows of the tables: read while the row is on its way.
  const uint16_t* gate_row = gated ? stream.gate.For(row) : nullptr;
  const uint16_t* scale_row = stream.scale.For(row);
  const uint16_t* shift_row = stream.shift.For(row);
  float sums[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (gated && Own(i) < arguments.vectors) {
      const uint4 gate = LoadTable(gate_row, Own(i));
#pragma unroll
      for (int j = 0; j < device::kPairs; ++j) {
        uint32_t& pair = device::PairAt(x[i], j);
        pair = device::GateResidual<kSteps>(pair, device::PairAt(gate, j),
                                            device::PairAt(branch[i], j));
      }
      *VectorAt(h, Own(i)) = x[i];
    }
    sums[i] = device::VectorSum(device::Widen(x[i]), device::Plain{});
  }
  const float mean = __fmul_rn(device::CtaRowSum(sums, slots[0]), arguments.inverse_count);
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    sums[i] = device::VectorSum(device::Widen(x[i]), device::SquareAround{mean});
    if (Own(i) >= arguments.vectors) sums[i] = 0.0f;
  }
  const float inverse = device::InverseDeviation(device::CtaRowSum(sums, slots[1]),
                                                 arguments.inverse_count, arguments.eps);
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (Own(i) >= arguments.vectors) continue;
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

struct RmsArguments {
  uint16_t* x;
  int64_t x_stride;
  const uint16_t* weight;
  uint16_t* y;
  int64_t y_stride;
  int32_t vectors;
  float inverse_count;
  float eps;
};

template <bool kSteps>
__global__ void __launch_bounds__(kMaxThreads)
    RmsNormKernel(const __grid_constant__ RmsArguments arguments) {
  __shared__ float slots[device::kSumLanes];
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const int64_t row = blockIdx.x;
  uint4 x[kVectorsPerThread];
  float sums[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    x[i] = {0, 0, 0, 0};
    if (Own(i) >= arguments.vectors) continue;
    x[i] = device::LoadOnce(VectorAt(arguments.x + row * arguments.x_stride, Own(i)));
  }
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    sums[i] = device::VectorSum(device::Widen(x[i]), device::Square{});
  }
  const float inverse = device::InverseDeviation(device::CtaRowSum(sums, slots),
                                                 arguments.inverse_count, arguments.eps);
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (Own(i) >= arguments.vectors) continue;
    const uint4 weight = LoadTable(arguments.weight, Own(i));
#pragma unroll
    for (int j = 0; j < device::kPairs; ++j) {
      uint32_t& pair = device::PairAt(x[i], j);
      pair = device::WeightPair<kSteps>(__fmul_rn(device::Low(pair), inverse),
                                        __fmul_rn(device::High(pair), inverse),
                                        device::PairAt(weight, j));
    }
    *VectorAt(arguments.y + row * arguments.y_stride, Own(i)) = x[i];
  }
}

// Of a CTA.
int32_t ThreadsFor(int32_t vectors) {
  return static_cast<int32_t>(CeilDiv(CeilDiv(vectors, kVectorsPerThread), 32) * 32);
}

NormStream StreamOf(const ModulatedNormStream& stream) {
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

}  // namespace

Status ModulatedNorm(const ModulatedNormParams& params, const Context& context) {
  NormArguments arguments = {.eps = params.eps};
  int64_t rows = 0;
  for (size_t i = 0; i < params.streams.size(); ++i) {
    arguments.streams[i] = StreamOf(params.streams[i]);
    rows += params.streams[i].h.rows;
    if (i == 0) arguments.first_rows = static_cast<uint32_t>(rows);
  }
  if (rows == 0 || params.streams[0].h.cols == 0) return {};
  const int64_t cols = params.streams[0].h.cols;
  arguments.vectors = static_cast<int32_t>(cols / device::kVector);
  arguments.inverse_count = 1.0f / static_cast<float>(cols);
  return WithSteps(params.rounding, [&](auto steps) {
    return Enqueue("modulated_norm", ModulatedNormKernel<steps()>,
                   {rows, ThreadsFor(arguments.vectors), context.stream, true}, arguments);
  });
}

Status LayerNorm(const LayerNormParams& params, const Context& context) {
  const ModulatedNormStream stream = {
      .h = params.x, .scale = params.scale, .shift = params.shift, .y = params.y};
  return cuda::ModulatedNorm(
      {.streams = {&stream, 1}, .eps = params.eps, .rounding = params.rounding}, context);
}

Status RmsNorm(const RmsNormParams& params, const Context& context) {
  if (params.x.rows == 0 || params.x.cols == 0) return {};
  const RmsArguments arguments = {.x = static_cast<uint16_t*>(params.x.data),
                                  .x_stride = params.x.stride,
                                  .weight = static_cast<const uint16_t*>(params.weight.data),
                                  .y = static_cast<uint16_t*>(params.y.data),
                                  .y_stride = params.y.stride,
                                  .vectors = static_cast<int32_t>(params.x.cols / device::kVector),
                                  .inverse_count = 1.0f / static_cast<float>(params.x.cols),
                                  .eps = params.eps};
  return WithSteps(params.rounding, [&](auto steps) {
    return Enqueue("rms_norm", RmsNormKernel<steps()>,
                   {params.x.rows, ThreadsFor(arguments.vectors), context.stream, true}, arguments);
  });
}

}  // namespace segue::kernels::cuda
