// Latents between their two layouts: an image grid and the tokens of the DiT.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// Token (r, c) of a [grid_height, grid_width] grid holds the 2x2 latent pixels at (2r, 2c): column
// ch * 4 + dy * 2 + dx is channel ch of pixel (2r + dy, 2c + dx).

struct PackLatentsParams {
  const float* latents = nullptr;  // [channels, 2 * grid_height, 2 * grid_width] float32
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  MatrixView tokens;  // [grid_height * grid_width, channels * 4]
};

// Errors: shapes that do not fit; no implementation for the device.
Status PackLatents(const PackLatentsParams& params, const Context& context);

// Of UnpackLatents with statistics on a GPU.
inline constexpr int64_t kMaxLatentChannels = 64;

struct UnpackLatentsParams {
  MatrixView tokens;  // [grid_height * grid_width, channels * 4]
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  // Both or neither: statistics of the VAE's latents, [channels], always in host memory.
  const float* mean = nullptr;
  const float* std = nullptr;
  MatrixView grid;  // [2 * grid_height * 2 * grid_width, channels], pixels in row order
  // Of mean, std and 1/std, of z / (1/std), and of the sum with the mean.
  Rounding rounding = Rounding::kNone;
};

// grid = z / (1/std) + mean, the arithmetic of diffusers. Errors: as PackLatents.
Status UnpackLatents(const UnpackLatentsParams& params, const Context& context);

}  // namespace segue::kernels
