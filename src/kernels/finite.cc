#include "kernels/finite.h"

#include "kernels/check.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "finite";

constexpr Kernel<FiniteParams> kFiniteKernels[] = {
    {"ref", NeedsCpu<FiniteParams>, RefFinite},
};

}  // namespace

Status Finite(const FiniteParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "all_finite", params.all_finite, 1));
  return Dispatch<FiniteParams>(kOp, kFiniteKernels, params, context);
}

}  // namespace segue::kernels
