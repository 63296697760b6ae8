#include <cmath>

#include "kernels/check.h"
#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefRmsNorm(const RmsNormParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const int64_t cols = params.x.cols;
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    float* y = params.y.Row<float>(row);
    const float squares =
        LaneSum(cols, [x](float sum, int64_t i) { return Scalar::Fma(x[i], x[i], sum); });
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(cols) + params.eps);
    for (int64_t i = 0; i < cols; ++i) {
      const float value = RoundStep<Scalar>(x[i] * inverse, rounding);
      y[i] = Round<Scalar>(value * WeightAt(params.weight, i), rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
