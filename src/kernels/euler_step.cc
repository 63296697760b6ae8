#include "kernels/euler_step.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "euler_step";

constexpr Kernel<EulerStepParams> kEulerStepKernels[] = {
    {"ref", NeedsCpu<EulerStepParams>, RefEulerStep, kReference},
    {"cuda_ref", cuda::NeedsCuda<EulerStepParams>, cuda::RefEulerStep, kReference},
};

}  // namespace

Status EulerStep(const EulerStepParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "v", params.v, params.x.rows, params.x.cols, context));
  return Dispatch<EulerStepParams>(kOp, kEulerStepKernels, params, context);
}

}  // namespace segue::kernels
