// Elementwise activations.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

enum class Activation : uint8_t {
  kNone,
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kSilu,      // x / (1 + e^-x)
};

struct ActivationParams {
  MatrixView x;  // [M, N] float32
  MatrixView y;  // [M, N] float32; may be x
  Activation activation = Activation::kSilu;
  Rounding rounding = Rounding::kNone;
};

// y = round(activation(x)). Errors: shapes that differ; no implementation for the device.
Status Activate(const ActivationParams& params, const Context& context);

struct SiluMulParams {
  MatrixView gate;  // [M, N] float32
  MatrixView up;    // [M, N] float32
  MatrixView y;     // [M, N] float32; may be gate or up
  Rounding rounding = Rounding::kNone;
};

// y = round(round(silu(gate)) * up), the gated MLP of Qwen2.5. Errors: as Activate.
Status SiluMul(const SiluMulParams& params, const Context& context);

}  // namespace segue::kernels
