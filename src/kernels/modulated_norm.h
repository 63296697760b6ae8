// What lies between two products of a DiT block: the gated residual connection, then layer
// normalisation and modulation, for both streams at once.
#pragma once

#include "base/span.h"
#include "device/tensor_view.h"
#include "kernels/registry.h"
#include "kernels/row_table.h"

namespace segue::kernels {

// Rows of one stream (image or text), each with its own request's modulation.
struct ModulatedNormStream {
  // Both or neither: h += gate * branch comes first.
  MatrixView branch;  // [M, N]: the output of attention or of the feed-forward network
  RowTable gate;
  MatrixView h;    // [M, N]: the residual stream
  RowTable scale;  // both are present
  RowTable shift;
  MatrixView y;  // [M, N], written; may be branch, must not overlap h
};

inline constexpr size_t kMaxNormStreams = 2;

struct ModulatedNormParams {
  Span<const ModulatedNormStream> streams;  // at most kMaxNormStreams, all of one width
  float eps = 1e-6f;
  // Where GateResidual and LayerNorm round.
  Rounding rounding = Rounding::kNone;
};

// h += gate * branch; y = LN(h) * (1 + scale) + shift. A fused implementation gives the bytes of
// GateResidual followed by LayerNorm, which is what its last implementation, "composed", runs.
// Errors: those of the two.
Status ModulatedNorm(const ModulatedNormParams& params, const Context& context);

// What ModulatedNorm checks, for operations that do the same and more.
Status CheckModulatedNorm(const ModulatedNormParams& params, const Context& context);

}  // namespace segue::kernels
