#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

namespace {

// Offset of channel `channel`, row `dy`, column `dx` within the columns of a token.
int64_t TokenColumn(int64_t channel, int64_t dy, int64_t dx) { return channel * 4 + dy * 2 + dx; }

}  // namespace

Status RefPackLatents(const PackLatentsParams& params, const Context&) {
  const int64_t height = 2 * params.grid_height;
  const int64_t width = 2 * params.grid_width;
  for (int64_t channel = 0; channel < params.tokens.cols / 4; ++channel) {
    for (int64_t row = 0; row < height; ++row) {
      for (int64_t col = 0; col < width; ++col) {
        float* token = params.tokens.Row<float>(row / 2 * params.grid_width + col / 2);
        token[TokenColumn(channel, row % 2, col % 2)] =
            params.latents[(channel * height + row) * width + col];
      }
    }
  }
  return {};
}

Status RefUnpackLatents(const UnpackLatentsParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const int64_t width = 2 * params.grid_width;
  for (int64_t pixel = 0; pixel < params.grid.rows; ++pixel) {
    const int64_t row = pixel / width;
    const int64_t col = pixel % width;
    const float* token = params.tokens.Row<float>(row / 2 * params.grid_width + col / 2);
    float* y = params.grid.Row<float>(pixel);
    for (int64_t channel = 0; channel < params.grid.cols; ++channel) {
      float value = token[TokenColumn(channel, row % 2, col % 2)];
      if (params.mean != nullptr) {
        const float std = RoundStep<Scalar>(params.std[channel], rounding);
        const float inverse = RoundStep<Scalar>(1.0f / std, rounding);
        value = RoundStep<Scalar>(value / inverse, rounding);
        value = value + RoundStep<Scalar>(params.mean[channel], rounding);
        value = Round<Scalar>(value, rounding);
      }
      y[channel] = value;
    }
  }
  return {};
}

}  // namespace segue::kernels
