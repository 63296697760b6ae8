#include <cmath>

#include "kernels/reference.h"

namespace segue::kernels {

Status RefFinite(const FiniteParams& params, const Context&) {
  bool finite = true;
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    for (int64_t i = 0; i < params.x.cols; ++i) finite = finite && std::isfinite(x[i]);
  }
  *params.all_finite = finite;
  return {};
}

}  // namespace segue::kernels
