// Decoded samples to 8-bit pixels.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct PixelsParams {
  MatrixView x;                         // [pixels, channels], nominally in -1..1
  uint8_t* pixels = nullptr;            // [pixels, channels]
  Rounding rounding = Rounding::kNone;  // of x / 2, and of the sum with 0.5
};

// round(255 * clamp(clamp(x, -1, 1) / 2 + 0.5, 0, 1)), ties to even; a NaN gives 0.
// diffusers: the VAE's clamp, VaeImageProcessor.denormalize and numpy_to_pil.
// Errors: shapes that do not fit; no implementation for the device.
Status Pixels(const PixelsParams& params, const Context& context);

}  // namespace segue::kernels
