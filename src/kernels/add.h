// Sum of two matrices, the residual connection.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct AddParams {
  MatrixView a;  // [M, N]
  MatrixView b;  // [M, N]
  MatrixView y;  // [M, N]; may be a or b
  Rounding rounding = Rounding::kNone;
};

// y = round(a + b). Errors: shapes that differ; no implementation for the device.
Status Add(const AddParams& params, const Context& context);

}  // namespace segue::kernels
