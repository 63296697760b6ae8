#include "kernels/linear.h"

#include "kernels/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "linear";

Status CheckWeights(const LinearParams& params) {
  if (params.x.cols < 1) return ArgumentError(kOp, "x", "no columns", "at least 1");
  const Shape wanted = {params.y.cols, params.x.cols};
  if (!(params.weight.shape == wanted)) {
    return ArgumentError(kOp, "weight", params.weight.shape.ToString(), wanted.ToString());
  }
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "weight", params.weight, wanted.NumElements()));
  if (!params.bias.present()) return {};
  return CheckWeight(kOp, "bias", params.bias, params.y.cols);
}

constexpr Kernel<LinearParams> kLinearKernels[] = {
    {"avx512", cpu::NeedsAvx512<LinearParams>, cpu::LinearAvx512},
    {"avx2", cpu::NeedsAvx2<LinearParams>, cpu::LinearAvx2},
    {"ref", NeedsCpu<LinearParams>, RefLinear, kReference},
};

}  // namespace

Status Linear(const LinearParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows, params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckWeights(params));
  return Dispatch<LinearParams>(kOp, kLinearKernels, params, context);
}

}  // namespace segue::kernels
