// Attention in three launches a chunk of queries: scores, softmax in their place, weighted values.
#include <algorithm>

#include "kernels/cuda/vae/vae.h"
#include "kernels/product_library.h"

namespace segue::kernels::cuda {
namespace {

// Of rows up to a multiple of kWideAttentionKeys.
WeightView AsWeight(const MatrixView& view, int64_t rows) {
  return {.data = view.data, .dtype = view.dtype, .shape = {rows, view.cols}};
}

Status RunChunk(const WideAttentionParams& params, const MatrixView& q, const MatrixView& o,
                const Context& context) {
  const int64_t row_bytes = WideAttentionRowBytes(params.k.rows);
  const int64_t keys =
      (params.k.rows + kWideAttentionKeys - 1) / kWideAttentionKeys * kWideAttentionKeys;
  const MatrixView scores = {.data = params.workspace,
                             .dtype = DType::kF32,
                             .rows = q.rows,
                             .cols = keys,
                             .stride = row_bytes / 4};
  SEGUE_RETURN_IF_ERROR(context.products->Multiply(
      {.x = q, .weight = AsWeight(params.k, keys), .weight_stride = params.k.stride, .y = scores},
      context.stream));
  SEGUE_RETURN_IF_ERROR(SoftmaxInPlace({.scores = scores.Row<float>(0),
                                        .rows = q.rows,
                                        .cols = params.k.rows,
                                        .padded_cols = keys,
                                        .stride = scores.stride,
                                        .scale = params.scale},
                                       context));
  const MatrixView weights = {.data = params.workspace,
                              .dtype = DType::kBF16,
                              .rows = q.rows,
                              .cols = keys,
                              .stride = row_bytes / 2};
  return context.products->Multiply({.x = weights,
                                     .weight = AsWeight(params.v, keys),
                                     .weight_stride = params.v.stride,
                                     .transposed_weight = true,
                                     .y = o},
                                    context.stream);
}

}  // namespace

Status WideAttention(const WideAttentionParams& params, const Context& context) {
  const int64_t queries = params.q.rows;
  const int64_t chunk = WideAttentionChunk(queries, params.k.rows, params.workspace_bytes);
  for (int64_t begin = 0; begin < queries; begin += chunk) {
    const int64_t rows = std::min(chunk, queries - begin);
    SEGUE_RETURN_IF_ERROR(
        RunChunk(params, params.q.Rows(begin, rows), params.o.Rows(begin, rows), context));
  }
  return {};
}

}  // namespace segue::kernels::cuda
