// True classifier-free guidance with the rescaling of each token to the conditional norm.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct GuidanceParams {
  MatrixView cond;      // [tokens, C]: velocity with the prompt
  MatrixView negative;  // [tokens, C]: velocity with the negative prompt
  MatrixView y;         // [tokens, C]; may be cond or negative
  float scale = 1.0f;
  // Of the difference, its product with scale, the sum, both norms, their ratio and the result.
  Rounding rounding = Rounding::kNone;
};

// comb = negative + scale (cond - negative); y = comb * (||cond|| / ||comb||), L2 norms of a token.
// A token whose comb is exactly zero stays zero (diffusers divides 0 by 0 there).
// diffusers: QwenImagePipeline.__call__. Errors: shapes that differ; no implementation.
Status Guidance(const GuidanceParams& params, const Context& context);

}  // namespace segue::kernels
