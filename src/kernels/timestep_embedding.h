// Sinusoidal embedding of the timestep.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct TimestepEmbeddingParams {
  const float* timesteps = nullptr;  // [M], sigma in 0..1
  MatrixView y;                      // [M, channels], channels even
  float scale = 1000.0f;             // timesteps a unit of sigma
  float max_period = 10000.0f;
  Rounding rounding = Rounding::kNone;  // of the result
};

// y = [cos a | sin a], a_i = scale * (t * f_i), f_i = exp(-ln(max_period) * i / (channels / 2)).
// diffusers: Timesteps(flip_sin_to_cos=True, downscale_freq_shift=0).
// Errors: shapes that do not fit; no implementation for the device.
Status TimestepEmbedding(const TimestepEmbeddingParams& params, const Context& context);

}  // namespace segue::kernels
