#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefGateResidual(const GateResidualParams& params, const Context&) {
  for (int64_t row = 0; row < params.h.rows; ++row) {
    const float* y = params.y.Row<float>(row);
    const float* gate = params.gate.For(row);
    float* h = params.h.Row<float>(row);
    for (int64_t i = 0; i < params.h.cols; ++i) {
      const float gated = RoundStep<Scalar>(gate[i] * y[i], params.rounding);
      h[i] = Round<Scalar>(h[i] + gated, params.rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
