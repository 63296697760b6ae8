#include "kernels/upsample.h"

#include "kernels/check.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "upsample";

constexpr Kernel<UpsampleParams> kUpsampleKernels[] = {
    {"cuda", cuda::RejectsFastUpsample, cuda::Upsample},
    {"cuda_ref", cuda::NeedsCuda<UpsampleParams>, cuda::RefUpsample, kReference},
};

}  // namespace

Status Upsample(const UpsampleParams& params, const Context& context) {
  const int64_t pixels = params.height * params.width;
  const int64_t channels = params.x.cols;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, pixels, channels, context));
  if (params.addend.data != nullptr) {
    SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "addend", params.addend, pixels, channels, context));
  }
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, 4 * pixels, channels, context));
  return Dispatch<UpsampleParams>(kOp, kUpsampleKernels, params, context);
}

}  // namespace segue::kernels
