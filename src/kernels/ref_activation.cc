#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefActivate(const ActivationParams& params, const Context&) {
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    float* y = params.y.Row<float>(row);
    for (int64_t i = 0; i < params.x.cols; ++i) {
      y[i] = Round<Scalar>(ApplyActivation<Scalar>(x[i], params.activation), params.rounding);
    }
  }
  return {};
}

Status RefSiluMul(const SiluMulParams& params, const Context&) {
  for (int64_t row = 0; row < params.y.rows; ++row) {
    const float* gate = params.gate.Row<float>(row);
    const float* up = params.up.Row<float>(row);
    float* y = params.y.Row<float>(row);
    for (int64_t i = 0; i < params.y.cols; ++i) {
      const float silu = RoundStep<Scalar>(Silu<Scalar>(gate[i]), params.rounding);
      y[i] = Round<Scalar>(silu * up[i], params.rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
