#include "kernels/sampler_step.h"

#include <string>

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "sampler_step";

constexpr Kernel<SamplerStepParams> kSamplerStepKernels[] = {
    {"cuda", cuda::RejectsFastSamplerStep, cuda::SamplerStep},
    {"ref", NeedsCpu<SamplerStepParams>, RefSamplerStep, kReference},
    {"cuda_ref", cuda::NeedsCuda<SamplerStepParams>, cuda::RefSamplerStep, kReference},
};

bool Inside(int32_t row, int32_t rows, int64_t all) {
  return row >= 0 && rows >= 0 && int64_t{row} + rows <= all;
}

Status CheckRecords(const SamplerStepParams& params) {
  const int64_t all = params.velocity.rows;
  for (int32_t i = 0; i < params.count; ++i) {
    const SamplerRecord& record = params.records[i];
    const bool negative =
        record.negative_row == -1 || Inside(record.negative_row, record.rows, all);
    if (negative && Inside(record.prompt_row, record.rows, all)) continue;
    return ArgumentError(kOp, "records",
                         std::to_string(record.rows) + " rows from " +
                             std::to_string(record.prompt_row) + " and " +
                             std::to_string(record.negative_row) + " at " + std::to_string(i),
                         "rows within " + std::to_string(all));
  }
  return {};
}

}  // namespace

Status SamplerStep(const SamplerStepParams& params, const Context& context) {
  const MatrixView& velocity = params.velocity;
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kOp, "velocity", velocity, velocity.rows, velocity.cols, context));
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kOp, "latents", params.latents, velocity.rows, velocity.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "records", params.records, params.count));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "not_finite", params.not_finite, params.count));
  if (context.stream.device() == DeviceKind::kCpu) SEGUE_RETURN_IF_ERROR(CheckRecords(params));
  return Dispatch<SamplerStepParams>(kOp, kSamplerStepKernels, params, context);
}

}  // namespace segue::kernels
