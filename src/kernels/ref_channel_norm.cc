#include <cmath>

#include "kernels/check.h"
#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefChannelNorm(const ChannelNormParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const int64_t channels = params.x.cols;
  const auto sqrt_channels = static_cast<float>(std::sqrt(static_cast<double>(channels)));
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    float* y = params.y.Row<float>(row);
    const float squares =
        LaneSum(channels, [x](float sum, int64_t i) { return Scalar::Fma(x[i], x[i], sum); });
    const float norm = Scalar::Max(kSmallestNorm, std::sqrt(squares));
    for (int64_t i = 0; i < channels; ++i) {
      float value = RoundStep<Scalar>(x[i] / norm, rounding);
      value = RoundStep<Scalar>(value * sqrt_channels, rounding);
      value = value * WeightAt(params.gamma, i);
      if (params.silu) value = Silu<Scalar>(RoundStep<Scalar>(value, rounding));
      y[i] = Round<Scalar>(value, rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
