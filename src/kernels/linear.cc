#include "kernels/linear.h"

#include "kernels/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"
#include "kernels/product_library.h"
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

const char* RejectsCublasLt(const LinearParams& params, const Context& context) {
  if (context.stream.device() != DeviceKind::kCuda) return "works on device memory only";
  if (context.products == nullptr) return "no product library was made";
  if (params.weight.dtype != DType::kBF16 ||
      (params.bias.present() && params.bias.dtype != DType::kBF16)) {
    return "takes bfloat16 weights only";
  }
  if (params.x.cols % 8 != 0 || params.y.cols % 8 != 0) return "takes multiples of 8 columns only";
  if (params.accumulate) return "rounds its sum once, so it cannot add to y";
  if (params.rounding == Rounding::kBF16Once && params.activation == Activation::kSilu) {
    return "has no SiLU before the rounding of its sum";
  }
  return nullptr;
}

Status RunCublasLt(const LinearParams& params, const Context& context) {
  const bool once = params.rounding == Rounding::kBF16Once;
  const bool gelu = once && params.activation == Activation::kGeluTanh;
  SEGUE_RETURN_IF_ERROR(context.products->Multiply(
      {.x = params.x,
       .weight = params.weight,
       .bias = params.bias,
       .y = params.y,
       .k_splits = params.k_splits,
       .epilogue = gelu ? ProductEpilogue::kGeluTanh : ProductEpilogue::kNone},
      context.stream));
  if (gelu || params.activation == Activation::kNone || params.y.rows == 0) return {};
  return Activate(
      {.x = params.y, .y = params.y, .activation = params.activation, .rounding = params.rounding},
      context);
}

constexpr Kernel<LinearParams> kLinearKernels[] = {
    // The reference on a GPU too: what is fast there is of the reference's class.
    {"cublaslt", RejectsCublasLt, RunCublasLt, kReference},
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
