#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefAdd(const AddParams& params, const Context&) {
  for (int64_t row = 0; row < params.y.rows; ++row) {
    const float* a = params.a.Row<float>(row);
    const float* b = params.b.Row<float>(row);
    float* y = params.y.Row<float>(row);
    for (int64_t i = 0; i < params.y.cols; ++i) {
      y[i] = Round<Scalar>(a[i] + b[i], params.rounding);
    }
  }
  return {};
}

}  // namespace segue::kernels
