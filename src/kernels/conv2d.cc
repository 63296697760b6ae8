#include "kernels/conv2d.h"

#include "kernels/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "conv2d";

Status CheckWeights(const Conv2dParams& params) {
  const Shape& shape = params.weight.shape;
  const int rank = shape.rank();
  const bool fits = (rank == 4 || rank == 5) && shape[0] == params.y.cols &&
                    shape[1] == params.x.cols && shape[1] > 0 &&
                    shape[rank - 1] == shape[rank - 2] &&
                    (shape[rank - 1] == 1 || shape[rank - 1] == 3);
  if (!fits) {
    return ArgumentError(kOp, "weight", shape.ToString(),
                         "[" + std::to_string(params.y.cols) + ", " +
                             std::to_string(params.x.cols) + ", (kt,) k, k] with k = 1 or 3");
  }
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "weight", params.weight, shape.NumElements()));
  if (!params.bias.present()) return {};
  return CheckWeight(kOp, "bias", params.bias, params.y.cols);
}

Status CheckResidual(const Conv2dParams& params, const Context& context) {
  if (params.residual.data == nullptr) return {};
  return CheckMatrix(kOp, "residual", params.residual, params.y.rows, params.y.cols, context);
}

template <CpuIsa kIsa>
const char* RejectsProduct(const Conv2dParams& params, const Context& context) {
  if (!cpu::Conv2dFits(params)) return "the weights of a channel exceed a worker's scratch";
  return cpu::MissingIsa(kIsa, context);
}

constexpr Kernel<Conv2dParams> kConv2dKernels[] = {
    {"avx512", RejectsProduct<CpuIsa::kAvx512>, cpu::Conv2dAvx512},
    {"avx2", RejectsProduct<CpuIsa::kAvx2>, cpu::Conv2dAvx2},
    {"ref", NeedsCpu<Conv2dParams>, RefConv2d, kReference},
};

}  // namespace

Status Conv2d(const Conv2dParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kOp, "x", params.x, params.height * params.width, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows * (params.upsample ? 4 : 1),
                                    params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckWeights(params));
  SEGUE_RETURN_IF_ERROR(CheckResidual(params, context));
  return Dispatch<Conv2dParams>(kOp, kConv2dKernels, params, context);
}

}  // namespace segue::kernels
