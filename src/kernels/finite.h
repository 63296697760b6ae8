// Whether a matrix holds numbers only.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct FiniteParams {
  MatrixView x;                // [M, N]
  bool* all_finite = nullptr;  // written: no NaN and no infinity
};

// Errors: no implementation for the device.
Status Finite(const FiniteParams& params, const Context& context);

}  // namespace segue::kernels
