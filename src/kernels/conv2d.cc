#include "kernels/conv2d.h"

#include <string>

#include "kernels/check.h"
#include "kernels/convolution_library.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/vae/vae.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "conv2d";

bool WeightFits(const Conv2dParams& params) {
  const Shape& shape = params.weight.shape;
  const int rank = shape.rank();
  const bool taps_last = params.order == WeightOrder::kOutInTaps;
  if (rank != 4 && !(rank == 5 && taps_last)) return false;
  const int taps = taps_last ? rank - 2 : 1;  // the axis of the first of two
  return shape[0] == params.y.cols && shape[taps_last ? 1 : 3] == params.x.cols &&
         params.x.cols > 0 && shape[taps] == shape[taps + 1] &&
         (shape[taps] == 1 || shape[taps] == 3);
}

Status CheckWeights(const Conv2dParams& params) {
  const Shape& shape = params.weight.shape;
  if (!WeightFits(params)) {
    const std::string out = std::to_string(params.y.cols);
    const std::string in = std::to_string(params.x.cols);
    return ArgumentError(kOp, "weight", shape.ToString(),
                         params.order == WeightOrder::kOutInTaps
                             ? "[" + out + ", " + in + ", (kt,) k, k] with k = 1 or 3"
                             : "[" + out + ", k, k, " + in + "] with k = 1 or 3");
  }
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "weight", params.weight, shape.NumElements()));
  if (!params.bias.present()) return {};
  return CheckWeight(kOp, "bias", params.bias, params.y.cols);
}

Status CheckResidual(const Conv2dParams& params, const Context& context) {
  if (params.residual.data == nullptr) return {};
  return CheckMatrix(kOp, "residual", params.residual, params.y.rows, params.y.cols, context);
}

constexpr char kTapsFirst[] = "weights lie in a GPU's order";

template <CpuIsa kIsa>
const char* RejectsProduct(const Conv2dParams& params, const Context& context) {
  if (params.order != WeightOrder::kOutInTaps) return kTapsFirst;
  if (!cpu::Conv2dFits(params)) return "the weights of a channel exceed a worker's scratch";
  return cpu::MissingIsa(kIsa, context);
}

const char* RejectsReference(const Conv2dParams& params, const Context& context) {
  if (params.order != WeightOrder::kOutInTaps) return kTapsFirst;
  return NeedsCpu(params, context);
}

const char* RejectsLibrary(const Conv2dParams& params, const Context& context) {
  if (const char* reason = cuda::RejectsDevice(context)) return reason;
  if (context.convolutions == nullptr) return "there is no convolution library";
  return context.convolutions->Rejects(params);
}

Status RunLibrary(const Conv2dParams& params, const Context& context) {
  return context.convolutions->Convolve(params, context.stream);
}

// Of a GPU the library comes first also among references: its order of summation is the
// operation's, and the plain kernel is for shapes that it has no plan for.
constexpr Kernel<Conv2dParams> kConv2dKernels[] = {
    {"avx512", RejectsProduct<CpuIsa::kAvx512>, cpu::Conv2dAvx512},
    {"avx2", RejectsProduct<CpuIsa::kAvx2>, cpu::Conv2dAvx2},
    {"cudnn", RejectsLibrary, RunLibrary, kReference},
    {"ref", RejectsReference, RefConv2d, kReference},
    {"cuda_ref", cuda::RejectsConv2d, cuda::RefConv2d, kReference},
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
