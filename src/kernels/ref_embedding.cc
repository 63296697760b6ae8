#include "kernels/check.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefEmbedding(const EmbeddingParams& params, const Context&) {
  for (int64_t row = 0; row < params.y.rows; ++row) {
    float* y = params.y.Row<float>(row);
    const int64_t first = params.ids[row] * params.y.cols;
    for (int64_t i = 0; i < params.y.cols; ++i) y[i] = WeightAt(params.table, first + i);
  }
  return {};
}

}  // namespace segue::kernels
