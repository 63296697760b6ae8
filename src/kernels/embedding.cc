#include "kernels/embedding.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "embedding";

Status CheckTable(const EmbeddingParams& params) {
  const Shape& shape = params.table.shape;
  if (shape.rank() != 2 || shape[1] != params.y.cols) {
    return ArgumentError(kOp, "table", shape.ToString(),
                         "[ids, " + std::to_string(params.y.cols) + "]");
  }
  return CheckWeight(kOp, "table", params.table, shape.NumElements());
}

constexpr Kernel<EmbeddingParams> kEmbeddingKernels[] = {
    {"ref", NeedsCpu<EmbeddingParams>, RefEmbedding, kReference},
    {"cuda_ref", cuda::RejectsEmbedding, cuda::RefEmbedding, kReference},
};

}  // namespace

Status Embedding(const EmbeddingParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.y.rows, params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckTable(params));
  SEGUE_RETURN_IF_ERROR(
      CheckIndices(kOp, "ids", params.ids, params.y.rows, params.table.shape[0], context));
  return Dispatch<EmbeddingParams>(kOp, kEmbeddingKernels, params, context);
}

}  // namespace segue::kernels
