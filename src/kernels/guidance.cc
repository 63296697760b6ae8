#include "kernels/guidance.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "guidance";

constexpr Kernel<GuidanceParams> kGuidanceKernels[] = {
    {"ref", NeedsCpu<GuidanceParams>, RefGuidance, kReference},
    {"cuda_ref", cuda::NeedsCuda<GuidanceParams>, cuda::RefGuidance, kReference},
};

}  // namespace

Status Guidance(const GuidanceParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.y.rows, params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kOp, "cond", params.cond, params.y.rows, params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kOp, "negative", params.negative, params.y.rows, params.y.cols, context));
  return Dispatch<GuidanceParams>(kOp, kGuidanceKernels, params, context);
}

}  // namespace segue::kernels
