#include "kernels/wide_attention.h"

#include <algorithm>
#include <string>

#include "kernels/check.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "wide_attention";

constexpr Kernel<WideAttentionParams> kWideAttentionKernels[] = {
    {"cuda", cuda::RejectsWideAttention, cuda::WideAttention, kReference},
};

}  // namespace

// All chunks alike, in tiles of 128 rows.
int64_t WideAttentionChunk(int64_t queries, int64_t keys, int64_t workspace_bytes) {
  constexpr int64_t kTile = 128;
  const int64_t most = workspace_bytes / WideAttentionRowBytes(keys);
  if (queries <= most) return queries;
  const int64_t chunks = (queries + most - 1) / most;
  const int64_t rows = ((queries + chunks - 1) / chunks + kTile - 1) / kTile * kTile;
  return std::min(rows, most);
}

std::array<ProductShape, 2> WideAttentionProducts(int64_t chunk, int64_t keys, int64_t d) {
  const int64_t padded = (keys + kWideAttentionKeys - 1) / kWideAttentionKeys * kWideAttentionKeys;
  return {{{.form = {.n = padded, .k = d, .y_dtype = DType::kF32}, .rows = chunk},
           {.form = {.n = d, .k = padded, .transposed_weight = true}, .rows = chunk}}};
}

Status WideAttention(const WideAttentionParams& params, const Context& context) {
  const int64_t queries = params.q.rows;
  const int64_t keys = params.k.rows;
  const int64_t d = params.q.cols;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "q", params.q, queries, d, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "k", params.k, keys, d, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "v", params.v, keys, d, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "o", params.o, queries, d, context));
  if (keys == 0) return ArgumentError(kOp, "k", "no rows", "keys");
  if (params.workspace == nullptr || params.workspace_bytes < WideAttentionRowBytes(keys)) {
    return ArgumentError(kOp, "workspace", std::to_string(params.workspace_bytes) + " bytes",
                         "at least " + std::to_string(WideAttentionRowBytes(keys)));
  }
  return Dispatch<WideAttentionParams>(kOp, kWideAttentionKernels, params, context);
}

}  // namespace segue::kernels
