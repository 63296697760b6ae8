#include "kernels/latents.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kPackOp[] = "pack_latents";
constexpr char kUnpackOp[] = "unpack_latents";

constexpr Kernel<PackLatentsParams> kPackLatentsKernels[] = {
    {"ref", NeedsCpu<PackLatentsParams>, RefPackLatents, kReference},
    {"cuda_ref", cuda::NeedsCuda<PackLatentsParams>, cuda::RefPackLatents, kReference},
};

constexpr Kernel<UnpackLatentsParams> kUnpackLatentsKernels[] = {
    {"ref", NeedsCpu<UnpackLatentsParams>, RefUnpackLatents, kReference},
    {"cuda_ref", cuda::RejectsUnpackLatents, cuda::RefUnpackLatents, kReference},
};

}  // namespace

Status PackLatents(const PackLatentsParams& params, const Context& context) {
  const MatrixView& tokens = params.tokens;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kPackOp, "tokens", tokens,
                                    params.grid_height * params.grid_width, tokens.cols / 4 * 4,
                                    context));
  SEGUE_RETURN_IF_ERROR(
      CheckPresent(kPackOp, "latents", params.latents, tokens.rows * tokens.cols));
  return Dispatch<PackLatentsParams>(kPackOp, kPackLatentsKernels, params, context);
}

Status UnpackLatents(const UnpackLatentsParams& params, const Context& context) {
  const int64_t cells = params.grid_height * params.grid_width;
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kUnpackOp, "tokens", params.tokens, cells, params.grid.cols * 4, context));
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kUnpackOp, "grid", params.grid, cells * 4, params.grid.cols, context));
  if ((params.mean == nullptr) != (params.std == nullptr)) {
    return ArgumentError(kUnpackOp, "mean and std", "one of them", "both or neither");
  }
  return Dispatch<UnpackLatentsParams>(kUnpackOp, kUnpackLatentsKernels, params, context);
}

}  // namespace segue::kernels
