#include "kernels/rms_norm.h"

#include "kernels/check.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "rms_norm";

constexpr Kernel<RmsNormParams> kRmsNormKernels[] = {
    {"ref", NeedsCpu<RmsNormParams>, RefRmsNorm},
};

}  // namespace

Status RmsNorm(const RmsNormParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows, params.x.cols));
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "weight", params.weight, params.x.cols));
  return Dispatch<RmsNormParams>(kOp, kRmsNormKernels, params, context);
}

}  // namespace segue::kernels
