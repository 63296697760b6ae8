// Rows of an embedding table by id.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct EmbeddingParams {
  const int32_t* ids = nullptr;  // [M]
  WeightView table;              // [V, N]
  MatrixView y;                  // [M, N]
};

// y[m] = table[ids[m]], widened. Errors: an id outside the table; shapes that do not fit.
Status Embedding(const EmbeddingParams& params, const Context& context);

}  // namespace segue::kernels
