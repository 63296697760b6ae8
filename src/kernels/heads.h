// What lies between a DiT block's projections and its attention: query and key heads, normalised
// and turned in place, for both streams at once. Values are not touched.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "device/tensor_view.h"
#include "kernels/registry.h"
#include "kernels/rope.h"

namespace segue::kernels {

// Rows of one stream: slices of its fused [M, q | k | v] projection.
struct HeadsStream {
  MatrixView q;                       // [M, heads * head_dim], or no data: queries are not wanted
  MatrixView k;                       // [M, heads * head_dim]
  WeightView q_weight;                // [head_dim] of the RMSNorm; present where q is
  WeightView k_weight;                // [head_dim]
  const int32_t* position = nullptr;  // [M]: the row of the rotation's table
};

inline constexpr size_t kMaxHeadsStreams = 2;

struct HeadsParams {
  Span<const HeadsStream> streams;  // at most kMaxHeadsStreams
  int32_t head_dim = 0;
  float eps = 1e-6f;
  RopeTable rope;  // its index is each stream's `position`
  // Where QkNormRope rounds.
  Rounding rounding = Rounding::kNone;
};

// A fused implementation gives the bytes of QkNormRope of every matrix, which is what its last
// implementation, "composed", runs. Errors: those of QkNormRope.
Status PrepareHeads(const HeadsParams& params, const Context& context);

}  // namespace segue::kernels
