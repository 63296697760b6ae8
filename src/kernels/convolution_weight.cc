#include "kernels/convolution_weight.h"

#include "kernels/check.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "reorder_convolution_weight";

constexpr Kernel<ConvolutionWeightParams> kReorderKernels[] = {
    {"cuda_ref", cuda::NeedsCuda<ConvolutionWeightParams>, cuda::RefReorderConvolutionWeight,
     kReference},
};

}  // namespace

Shape TapsFirst(const Shape& checkpoint) {
  const int rank = checkpoint.rank();
  return {checkpoint[0], checkpoint[rank - 2], checkpoint[rank - 1], checkpoint[1]};
}

Status ReorderConvolutionWeight(const ConvolutionWeightParams& params, const Context& context) {
  const Shape& shape = params.weight.shape;
  if (shape.rank() != 4 && shape.rank() != 5) {
    return ArgumentError(kOp, "weight", shape.ToString(), "[out, in, (kt,) k, k]");
  }
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "weight", params.weight, shape.NumElements()));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "y", params.y, shape.NumElements()));
  return Dispatch<ConvolutionWeightParams>(kOp, kReorderKernels, params, context);
}

}  // namespace segue::kernels
