#include <cmath>

#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefLayerNorm(const LayerNormParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const int64_t cols = params.x.cols;
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    float* y = params.y.Row<float>(row);
    const float mean =
        LaneSum(cols, [x](float sum, int64_t i) { return sum + x[i]; }) / static_cast<float>(cols);
    const float squares = LaneSum(cols, [x, mean](float sum, int64_t i) {
      return Scalar::Fma(x[i] - mean, x[i] - mean, sum);
    });
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(cols) + params.eps);
    for (int64_t i = 0; i < cols; ++i) {
      float value = (x[i] - mean) * inverse;
      if (params.scale.present()) {
        value = RoundStep<Scalar>(value, rounding);
        const float scale = RoundStep<Scalar>(1.0f + params.scale.For(row)[i], rounding);
        value = RoundStep<Scalar>(value * scale, rounding);
        value = value + params.shift.For(row)[i];
      }
      y[i] = Round<Scalar>(value, rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
