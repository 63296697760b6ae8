// The plain kernels of the end of a step: guidance, the Euler step, and whether results are
// numbers. A warp a token.
#include <cuda_runtime.h>

#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

// y = comb (||cond|| / ||comb||) of one token. y may be either input.
template <bool kSteps>
__device__ void GuideToken(const uint16_t* cond, const uint16_t* negative, uint16_t* y,
                           int64_t channels, float scale) {
  const auto cond_at = [=](int64_t i) { return device::Widen(cond[i]); };
  const auto comb_at = [=](int64_t i) {
    return device::Combine<kSteps>(device::Widen(cond[i]), device::Widen(negative[i]), scale);
  };
  const float ratio =
      device::NormRatio<kSteps>(device::WarpRowSum(channels, device::Square{}, cond_at),
                                device::WarpRowSum(channels, device::Square{}, comb_at));
  for (int64_t i = LaneIndex(); i < channels; i += 32) {
    y[i] = device::Narrow(__fmul_rn(comb_at(i), ratio));
  }
}

template <bool kSteps>
__global__ void GuidanceKernel(Matrix cond, Matrix negative, Matrix y, float scale) {
  const int64_t row = WarpIndex();
  if (row >= y.rows) return;
  GuideToken<kSteps>(cond.Row(row), negative.Row(row), y.Row(row), y.cols, scale);
}

// Whether this lane's elements of a row are numbers.
__device__ bool LaneIsFinite(const uint16_t* row, int64_t cols) {
  bool finite = true;
  for (int64_t i = LaneIndex(); i < cols; i += 32) {
    finite = finite && device::IsFinite(device::Widen(row[i]));
  }
  return finite;
}

// *all_finite is true before; all that write write the same.
__global__ void FiniteKernel(Matrix x, bool* all_finite) {
  const int64_t row = WarpIndex();
  if (row >= x.rows) return;
  if (!LaneIsFinite(x.Row(row), x.cols)) *all_finite = false;
}

// One CTA a request.
template <bool kSteps>
__global__ void SamplerStepKernel(Matrix velocity, Matrix latents, const SamplerRecord* records,
                                  int32_t max_rows, int32_t* not_finite) {
  const SamplerRecord record = records[blockIdx.x];
  const int64_t channels = velocity.cols;
  int32_t bits = 0;
  for (int64_t token = threadIdx.x / 32; token < min(record.rows, max_rows); token += kPlainWarps) {
    const int64_t row = record.prompt_row + token;
    const int64_t negative_row = record.negative_row + token;
    const bool guided = record.negative_row >= 0;
    if (row < 0 || row >= velocity.rows || (guided && negative_row >= velocity.rows)) continue;
    uint16_t* v = velocity.Row(row);
    uint16_t* x = latents.Row(row);
    if (!LaneIsFinite(v, channels)) bits |= kPromptVelocityNotFinite;
    if (guided) {
      const uint16_t* negative = velocity.Row(negative_row);
      if (!LaneIsFinite(negative, channels)) bits |= kNegativeVelocityNotFinite;
      GuideToken<kSteps>(v, negative, v, channels, record.guidance);
    }
    for (int64_t i = LaneIndex(); i < channels; i += 32) {
      x[i] = device::Narrow(
          device::EulerStep<kSteps>(device::Widen(x[i]), device::Widen(v[i]), record.dt));
      if (guided) latents.Row(negative_row)[i] = x[i];
    }
    if (!LaneIsFinite(x, channels)) bits |= kLatentsNotFinite;
  }
  int32_t all = 0;
  for (int32_t bit = 1; bit <= kLatentsNotFinite; bit *= 2) {
    if (__syncthreads_or(bits & bit) != 0) all |= bit;
  }
  if (threadIdx.x == 0) not_finite[blockIdx.x] = all;
}

}  // namespace

Status RefGuidance(const GuidanceParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueWarps("guidance", GuidanceKernel<steps()>, params.y.rows, context,
                        MatrixOf(params.cond), MatrixOf(params.negative), MatrixOf(params.y),
                        params.scale);
  });
}

Status RefFinite(const FiniteParams& params, const Context& context) {
  constexpr char kOp[] = "finite";
  SEGUE_RETURN_IF_ERROR(EnqueueFill(kOp, params.all_finite, 1, sizeof(bool), context));
  return EnqueueWarps(kOp, FiniteKernel, params.x.rows, context, MatrixOf(params.x),
                      params.all_finite);
}

Status RefSamplerStep(const SamplerStepParams& params, const Context& context) {
  if (params.count == 0) return {};
  return WithSteps(params.rounding, [&](auto steps) {
    return Enqueue("sampler_step", SamplerStepKernel<steps()>,
                   {params.count, kPlainThreads, context.stream}, MatrixOf(params.velocity),
                   MatrixOf(params.latents), params.records, params.max_rows, params.not_finite);
  });
}

}  // namespace segue::kernels::cuda
