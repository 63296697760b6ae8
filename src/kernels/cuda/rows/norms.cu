// Gated residual, normalisation and modulation in one pass over a row: a CTA a row, whose elements
// stay in registers from the load to the last store.
#include <cuda_runtime.h>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/grid_order.h"
#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/norm_row.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

struct NormArguments {
  NormStream streams[kMaxNormStreams];
  uint32_t first_rows;  // of the first stream; the rest are the second's
  NormShape shape;
};

template <bool kSteps>
__global__ void __launch_bounds__(kMaxNormThreads)
    ModulatedNormKernel(const __grid_constant__ NormArguments arguments) {
  __shared__ NormSlots slots;
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const bool second = blockIdx.x >= arguments.first_rows;
  const NormStream& stream = arguments.streams[second ? 1 : 0];
  const int64_t row = blockIdx.x - (second ? arguments.first_rows : 0);
  uint16_t* h = stream.h + row * stream.h_stride;
  const bool gated = stream.branch != nullptr;

  NormVectors x;
  NormVectors branch;
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    x[i] = {0, 0, 0, 0};
    if (Own(i) >= arguments.shape.vectors) continue;
    x[i] = device::LoadOnce(VectorAt(h, Own(i)));
    if (!gated) continue;
    branch[i] = device::LoadOnce(VectorAt(stream.branch + row * stream.branch_stride, Own(i)));
  }
  FinishNormRow<kSteps>(stream, arguments.shape, row, gated, x, branch, slots);
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
__global__ void __launch_bounds__(kMaxNormThreads)
    RmsNormKernel(const __grid_constant__ RmsArguments arguments) {
  __shared__ float slots[device::kSumLanes];
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const int64_t row = blockIdx.x;
  uint4 x[kNormVectorsPerThread];
  float sums[kNormVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    x[i] = {0, 0, 0, 0};
    if (Own(i) >= arguments.vectors) continue;
    x[i] = device::LoadOnce(VectorAt(arguments.x + row * arguments.x_stride, Own(i)));
  }
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    sums[i] = device::VectorSum(device::Widen(x[i]), device::Square{});
  }
  const float inverse = device::InverseDeviation(device::CtaRowSum(sums, slots),
                                                 arguments.inverse_count, arguments.eps);
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
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

}  // namespace

Status ModulatedNorm(const ModulatedNormParams& params, const Context& context) {
  NormArguments arguments = {};
  int64_t rows = 0;
  for (size_t i = 0; i < params.streams.size(); ++i) {
    arguments.streams[i] = NormStreamOf(params.streams[i]);
    rows += params.streams[i].h.rows;
    if (i == 0) arguments.first_rows = static_cast<uint32_t>(rows);
  }
  if (rows == 0 || params.streams[0].h.cols == 0) return {};
  arguments.shape = NormShapeOf(params.streams[0].h.cols, params.eps);
  return WithSteps(params.rounding, [&](auto steps) {
    return Enqueue("modulated_norm", ModulatedNormKernel<steps()>,
                   {rows, NormThreads(arguments.shape.vectors), context.stream, true}, arguments);
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
                   {params.x.rows, NormThreads(arguments.vectors), context.stream, true},
                   arguments);
  });
}

}  // namespace segue::kernels::cuda
