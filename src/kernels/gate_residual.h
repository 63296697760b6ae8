// Gated residual connection of the DiT block.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"
#include "kernels/row_table.h"

namespace segue::kernels {

struct GateResidualParams {
  MatrixView y;                         // [M, N]: the branch's output
  RowTable gate;                        // [rows, N]
  MatrixView h;                         // [M, N]: the residual stream, updated; must not overlap y
  Rounding rounding = Rounding::kNone;  // of gate * y, and of the sum
};

// h += gate * y. Errors: shapes or indices that do not fit; no implementation for the device.
Status GateResidual(const GateResidualParams& params, const Context& context);

}  // namespace segue::kernels
