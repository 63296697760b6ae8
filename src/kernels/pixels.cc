#include "kernels/pixels.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "pixels";

constexpr Kernel<PixelsParams> kPixelsKernels[] = {
    {"ref", NeedsCpu<PixelsParams>, RefPixels, kReference},
    {"cuda_ref", cuda::NeedsCuda<PixelsParams>, cuda::RefPixels, kReference},
};

}  // namespace

Status Pixels(const PixelsParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "pixels", params.pixels, params.x.rows * params.x.cols));
  return Dispatch<PixelsParams>(kOp, kPixelsKernels, params, context);
}

}  // namespace segue::kernels
