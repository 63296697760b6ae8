#include <algorithm>

#include "kernels/check.h"
#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

namespace {

// One output pixel and channel, in the order of a Linear over k = (row tap, column tap, channel).
float ConvolveAt(const Conv2dParams& p, int64_t out_row, int64_t out_col, int64_t out_channel) {
  const int scale = p.upsample ? 2 : 1;
  const int64_t channels = p.x.cols;
  const int64_t kernel = p.weight.shape[p.weight.shape.rank() - 1];
  const int64_t taps = kernel * kernel;
  const int64_t frames = p.weight.shape.rank() == 5 ? p.weight.shape[2] : 1;
  float total = 0.0f;
  for (int64_t begin = 0; begin < taps * channels; begin += kLinearBlockK) {
    float sum = 0.0f;
    for (int64_t k = begin; k < std::min(begin + kLinearBlockK, taps * channels); ++k) {
      const int64_t tap = k / channels;
      const int64_t channel = k % channels;
      const int64_t row = out_row + tap / kernel - kernel / 2;
      const int64_t col = out_col + tap % kernel - kernel / 2;
      const bool inside = row >= 0 && row < p.height * scale && col >= 0 && col < p.width * scale;
      const float x = inside ? p.x.Row<float>(row / scale * p.width + col / scale)[channel] : 0.0f;
      const int64_t last_frame = (out_channel * channels + channel) * frames + frames - 1;
      sum = Scalar::Fma(x, WeightAt(p.weight, last_frame * taps + tap), sum);
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

}  // namespace

Status RefConv2d(const Conv2dParams& params, const Context&) {
  const int64_t out_width = params.width * (params.upsample ? 2 : 1);
  for (int64_t pixel = 0; pixel < params.y.rows; ++pixel) {
    float* y = params.y.Row<float>(pixel);
    for (int64_t channel = 0; channel < params.y.cols; ++channel) {
      float value = ConvolveAt(params, pixel / out_width, pixel % out_width, channel);
      if (params.bias.present()) value += WeightAt(params.bias, channel);
      if (params.residual.data != nullptr) {
        value =
            params.residual.Row<float>(pixel)[channel] + RoundStep<Scalar>(value, params.rounding);
      }
      y[channel] = Round<Scalar>(value, params.rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
