// The end of a step for all requests: a group of lanes a token, a vector a lane.
#include <cuda_runtime.h>

#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

struct SamplerArguments {
  Matrix velocity;
  Matrix latents;
  const SamplerRecord* records;
  int32_t* not_finite;
  int32_t max_rows;
  int32_t record_ctas;  // of each record
  int32_t group;        // lanes of a token: its vectors, rounded up to a power of two
};

__device__ __forceinline__ uint4* VectorAt(const Matrix& matrix, int64_t row, int32_t vector) {
  return reinterpret_cast<uint4*>(matrix.Row(row)) + vector;
}

__device__ __forceinline__ bool IsFinite(const device::Floats& x) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) finite = finite && device::IsFinite(x.at[i]);
  return finite;
}

// The guided velocity of a vector of channels.
template <bool kSteps>
__device__ __forceinline__ device::Floats Guide(const device::Floats& cond,
                                                const device::Floats& negative, float scale,
                                                int32_t group) {
  device::Floats comb;
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) {
    comb.at[i] = device::Combine<kSteps>(cond.at[i], negative.at[i], scale);
  }
  const float ratio =
      device::NormRatio<kSteps>(device::LaneSum(device::VectorSum(cond, device::Square{}), group),
                                device::LaneSum(device::VectorSum(comb, device::Square{}), group));
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) comb.at[i] = __fmul_rn(comb.at[i], ratio);
  return comb;
}

// not_finite is 0 before.
template <bool kSteps>
__global__ void __launch_bounds__(kPlainThreads)
    SamplerStepKernel(const __grid_constant__ SamplerArguments arguments) {
  const auto which = static_cast<int32_t>(blockIdx.x) / arguments.record_ctas;
  const auto cta = static_cast<int32_t>(blockIdx.x) % arguments.record_ctas;
  const SamplerRecord record = arguments.records[which];
  const int32_t token = (cta * kPlainThreads + static_cast<int32_t>(threadIdx.x)) / arguments.group;
  const int32_t vector = static_cast<int32_t>(threadIdx.x) % arguments.group;
  const int64_t row = int64_t{record.prompt_row} + token;
  const int64_t negative_row = int64_t{record.negative_row} + token;
  const bool guided = record.negative_row >= 0;
  const bool there = vector * device::kVector < arguments.velocity.cols &&
                     token < min(record.rows, arguments.max_rows) && row >= 0 &&
                     row < arguments.velocity.rows &&
                     (!guided || negative_row < arguments.velocity.rows);
  device::Floats v = {};
  device::Floats negative = {};
  device::Floats x = {};
  if (there) {
    v = device::Widen(*VectorAt(arguments.velocity, row, vector));
    x = device::Widen(*VectorAt(arguments.latents, row, vector));
    if (guided) negative = device::Widen(*VectorAt(arguments.velocity, negative_row, vector));
  }
  int32_t bits = IsFinite(v) ? 0 : kPromptVelocityNotFinite;
  if (!IsFinite(negative)) bits |= kNegativeVelocityNotFinite;
  if (guided) {
    const uint4 packed =
        device::Narrow(Guide<kSteps>(v, negative, record.guidance, arguments.group));
    if (there) *VectorAt(arguments.velocity, row, vector) = packed;
    v = device::Widen(packed);
  }
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) {
    x.at[i] = device::EulerStep<kSteps>(x.at[i], v.at[i], record.dt);
  }
  const uint4 packed = device::Narrow(x);
  if (there) {
    if (!IsFinite(device::Widen(packed))) bits |= kLatentsNotFinite;
    *VectorAt(arguments.latents, row, vector) = packed;
    if (guided) *VectorAt(arguments.latents, negative_row, vector) = packed;
    if (bits != 0) atomicOr(arguments.not_finite + which, bits);
  }
}

}  // namespace

Status SamplerStep(const SamplerStepParams& params, const Context& context) {
  constexpr char kOp[] = "sampler_step";
  if (params.count == 0) return {};
  SEGUE_RETURN_IF_ERROR(
      EnqueueFill(kOp, params.not_finite, 0, params.count * sizeof(int32_t), context));
  SamplerArguments arguments = {.velocity = MatrixOf(params.velocity),
                                .latents = MatrixOf(params.latents),
                                .records = params.records,
                                .not_finite = params.not_finite,
                                .max_rows = params.max_rows,
                                .group = 1};
  while (arguments.group * device::kVector < params.velocity.cols) arguments.group *= 2;
  arguments.record_ctas =
      static_cast<int32_t>(CeilDiv(int64_t{params.max_rows} * arguments.group, kPlainThreads));
  const int64_t ctas = int64_t{params.count} * arguments.record_ctas;
  if (ctas == 0) return {};
  return WithSteps(params.rounding, [&](auto steps) {
    return Enqueue(kOp, SamplerStepKernel<steps()>, {ctas, kPlainThreads, context.stream},
                   arguments);
  });
}

}  // namespace segue::kernels::cuda
