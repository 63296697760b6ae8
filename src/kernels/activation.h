// Elementwise activations.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

enum class Activation : uint8_t {
  kNone,
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kSilu,      // x / (1 + e^-x)
};

struct ActivationParams {
  MatrixView x;  // [M, N]
  MatrixView y;  // [M, N]; may be x
  Activation activation = Activation::kSilu;
  Rounding rounding = Rounding::kNone;
};

// y = round(activation(x)). Errors: shapes that differ; no implementation for the device.
Status Activate(const ActivationParams& params, const Context& context);

inline constexpr size_t kMaxActivationStreams = 2;

struct ActivationStreams {
  Span<const ActivationParams> streams;  // at most kMaxActivationStreams
};

// Activate for the matrices of both streams, in one launch on a GPU where their activations agree.
// Errors: as Activate.
Status ActivateStreams(const ActivationStreams& params, const Context& context);

struct SiluMulParams {
  MatrixView gate;  // [M, N]
  MatrixView up;    // [M, N]
  MatrixView y;     // [M, N]; may be gate or up
  Rounding rounding = Rounding::kNone;
};

// y = round(round(silu(gate)) * up), the gated MLP of Qwen2.5. Errors: as Activate.
Status SiluMul(const SiluMulParams& params, const Context& context);

}  // namespace segue::kernels
