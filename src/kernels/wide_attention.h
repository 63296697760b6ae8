// Self-attention of one head that is wider than fused kernels take, such as the VAE's (384).
#pragma once

#include <array>
#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/product_library.h"
#include "kernels/registry.h"

namespace segue::kernels {

// Keys are taken in multiples of this.
inline constexpr int64_t kWideAttentionKeys = 8;

struct WideAttentionParams {
  MatrixView q;  // [queries, d]
  // [keys, d]. Rows behind them up to kWideAttentionKeys are read too, without influence, and must
  // hold numbers.
  MatrixView k;
  MatrixView v;
  MatrixView o;  // [queries, d]; overlaps none of the others
  float scale = 1.0f;
  // Device memory for the scores of as many queries at a time as fit, 16-byte aligned; at least
  // WideAttentionRowBytes(keys).
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// Of a query's scores: float32, rows of whole 128-byte lines.
constexpr int64_t WideAttentionRowBytes(int64_t keys) { return (4 * keys + 127) / 128 * 128; }

// Queries that are taken at a time.
int64_t WideAttentionChunk(int64_t queries, int64_t keys, int64_t workspace_bytes);

// Its products, for ProductLibrary::Warm: without that they run some 1.6 times as long.
std::array<ProductShape, 2> WideAttentionProducts(int64_t chunk, int64_t keys, int64_t d);

// o = round(round(softmax(scale q k^T)) v), products and softmax in float32. Queries are taken in
// chunks, so that memory does not grow with queries x keys; a row's bytes do not depend on the
// chunks, since a product's do not depend on its rows (kernels/product_library.h).
// Errors: shapes that do not fit; no implementation for the device (there is none for the CPU: see
// attention/attention.h).
Status WideAttention(const WideAttentionParams& params, const Context& context);

}  // namespace segue::kernels
