#include <cmath>

#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefGuidance(const GuidanceParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const auto combine = [&](float cond, float negative) {
    const float difference = RoundStep<Scalar>(cond - negative, rounding);
    const float scaled = RoundStep<Scalar>(params.scale * difference, rounding);
    return RoundStep<Scalar>(negative + scaled, rounding);
  };
  const int64_t channels = params.y.cols;
  for (int64_t row = 0; row < params.y.rows; ++row) {
    const float* cond = params.cond.Row<float>(row);
    const float* negative = params.negative.Row<float>(row);
    float* y = params.y.Row<float>(row);
    const float cond_squares =
        LaneSum(channels, [=](float sum, int64_t i) { return Scalar::Fma(cond[i], cond[i], sum); });
    const float comb_squares = LaneSum(channels, [&](float sum, int64_t i) {
      const float comb = combine(cond[i], negative[i]);
      return Scalar::Fma(comb, comb, sum);
    });
    const float cond_norm = RoundStep<Scalar>(std::sqrt(cond_squares), rounding);
    const float comb_norm = RoundStep<Scalar>(std::sqrt(comb_squares), rounding);
    const float ratio =
        comb_norm == 0.0f ? 0.0f : RoundStep<Scalar>(cond_norm / comb_norm, rounding);
    for (int64_t i = 0; i < channels; ++i) {
      y[i] = Round<Scalar>(combine(cond[i], negative[i]) * ratio, rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
