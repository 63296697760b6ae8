#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefEulerStep(const EulerStepParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const float dt = RoundStep<Scalar>(params.dt, rounding);
  for (int64_t row = 0; row < params.x.rows; ++row) {
    float* x = params.x.Row<float>(row);
    const float* v = params.v.Row<float>(row);
    for (int64_t i = 0; i < params.x.cols; ++i) {
      x[i] = Round<Scalar>(x[i] + RoundStep<Scalar>(dt * v[i], rounding), rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
