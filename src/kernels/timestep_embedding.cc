#include "kernels/timestep_embedding.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "timestep_embedding";

constexpr Kernel<TimestepEmbeddingParams> kTimestepEmbeddingKernels[] = {
    {"ref", NeedsCpu<TimestepEmbeddingParams>, RefTimestepEmbedding, kReference},
    {"cuda_ref", cuda::NeedsCuda<TimestepEmbeddingParams>, cuda::RefTimestepEmbedding, kReference},
};

}  // namespace

Status TimestepEmbedding(const TimestepEmbeddingParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(
      CheckMatrix(kOp, "y", params.y, params.y.rows, params.y.cols / 2 * 2, context));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "timesteps", params.timesteps, params.y.rows));
  return Dispatch<TimestepEmbeddingParams>(kOp, kTimestepEmbeddingKernels, params, context);
}

}  // namespace segue::kernels
