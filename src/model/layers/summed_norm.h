// A norm whose branches the ranks have in parts.
#pragma once

#include "kernels/modulated_norm.h"
#include "model/layers/forward_context.h"

namespace segue::model {

// Sums the streams' branches over the ranks, then kernels::ModulatedNorm. Where rounding is not a
// matter of the storage, the sum is rounded in between, as the whole product would have been.
// Errors: those of both.
Status SumAndNormalise(const kernels::ModulatedNormParams& params, const ForwardContext& context);

}  // namespace segue::model
