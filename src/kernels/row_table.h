// Vectors that rows of a matrix share: modulation of a request, used by all of its tokens.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::kernels {

struct RowTable {
  const void* data = nullptr;      // [rows, N] of the context's activation type
  int64_t rows = 0;                // e.g. the requests of a batch
  int64_t stride = 0;              // elements between rows; a slice of a projection needs no copy
  const int32_t* index = nullptr;  // [M]: the row of the table that row m uses; null: row 0 for all

  bool present() const { return data != nullptr; }
  // Precondition: host memory.
  const float* For(int64_t row) const {
    return static_cast<const float*>(data) + (index == nullptr ? 0 : index[row]) * stride;
  }
};

// The table serves a matrix shaped like `rows`.
Status CheckRowTable(const char* op, const char* argument, const RowTable& table,
                     const MatrixView& rows, const Context& context);

}  // namespace segue::kernels
