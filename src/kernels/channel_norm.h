// Normalisation of the channels of each pixel, the VAE's norm.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// Keeps a pixel of zeros from dividing by zero: the eps of torch.nn.functional.normalize.
inline constexpr float kSmallestNorm = 1e-12f;

struct ChannelNormParams {
  MatrixView x;       // [pixels, C]
  MatrixView addend;  // like x, or absent: added to x first
  MatrixView sum;     // like x, or absent: where x + addend goes; may be x or the addend
  WeightView gamma;   // C elements
  MatrixView y;       // [pixels, C]; may be x or the addend if that is not the sum
  bool silu = false;
  // Of x + addend, of x / norm (computed in float32, as diffusers 0.38 and later do), of its
  // product with sqrt(C), of that with gamma, and of the SiLU. On a GPU the sum is rounded in any
  // case.
  Rounding rounding = Rounding::kNone;
};

// y = x / max(||x||_2, 1e-12) * sqrt(C) * gamma over the channels, then SiLU if asked.
// diffusers: QwenImageRMS_norm. Errors: shapes that do not fit; no implementation for the device.
Status ChannelNorm(const ChannelNormParams& params, const Context& context);

}  // namespace segue::kernels
