#include <cmath>

#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefTimestepEmbedding(const TimestepEmbeddingParams& params, const Context&) {
  const int64_t half = params.y.cols / 2;
  const auto minus_log_period =
      static_cast<float>(-std::log(static_cast<double>(params.max_period)));
  for (int64_t row = 0; row < params.y.rows; ++row) {
    float* y = params.y.Row<float>(row);
    for (int64_t i = 0; i < half; ++i) {
      const float exponent = minus_log_period * static_cast<float>(i) / static_cast<float>(half);
      const float angle = params.scale * (params.timesteps[row] * std::exp(exponent));
      y[i] = Round<Scalar>(std::cos(angle), params.rounding);
      y[half + i] = Round<Scalar>(std::sin(angle), params.rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
