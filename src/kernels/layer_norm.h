// Layer normalisation without affine weights, then an optional modulation by row.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"
#include "kernels/row_table.h"

namespace segue::kernels {

struct LayerNormParams {
  MatrixView x;  // [M, N]
  MatrixView y;  // [M, N]; may be x
  float eps = 1e-6f;
  // Both or neither: y = LN(x) * (1 + scale) + shift.
  RowTable scale;
  RowTable shift;
  // Of LN(x), of 1 + scale, of their product, and of the sum.
  Rounding rounding = Rounding::kNone;
};

// LN(x) = (x - mean) / sqrt(variance + eps) over a row, the biased variance of torch.
// Errors: shapes or indices that do not fit; no implementation for the device.
Status LayerNorm(const LayerNormParams& params, const Context& context);

}  // namespace segue::kernels
