// Root-mean-square normalisation of rows, with a weight.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct RmsNormParams {
  MatrixView x;       // [M, N]
  WeightView weight;  // [N]
  MatrixView y;       // [M, N]; may be x
  float eps = 1e-6f;
  Rounding rounding = Rounding::kNone;  // of x / rms, and of its product with the weight
};

// y = x / sqrt(mean(x^2) + eps) * weight over a row.
// Errors: shapes that do not fit; no implementation for the device.
Status RmsNorm(const RmsNormParams& params, const Context& context);

}  // namespace segue::kernels
