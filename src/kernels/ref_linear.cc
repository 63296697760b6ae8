#include <algorithm>

#include "kernels/check.h"
#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefLinear(const LinearParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const int64_t depth = params.x.cols;
  for (int64_t row = 0; row < params.y.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    float* y = params.y.Row<float>(row);
    for (int64_t col = 0; col < params.y.cols; ++col) {
      float total = 0.0f;
      for (int64_t begin = 0; begin < depth; begin += kLinearBlockK) {
        float sum = 0.0f;
        for (int64_t k = begin; k < std::min(begin + kLinearBlockK, depth); ++k) {
          sum = Scalar::Fma(x[k], WeightAt(params.weight, col * depth + k), sum);
        }
        total = begin == 0 ? sum : total + sum;
      }
      if (params.bias.present()) total += WeightAt(params.bias, col);
      float value = total;
      if (params.activation != Activation::kNone) {
        value = ApplyActivation<Scalar>(RoundStep<Scalar>(value, rounding), params.activation);
      }
      if (params.accumulate) value = y[col] + RoundStep<Scalar>(value, rounding);
      y[col] = Round<Scalar>(value, rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
