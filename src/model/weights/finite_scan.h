// Looks at every weight of a component for values that are no numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

struct NonFiniteTensor {
  const TensorEntry* entry = nullptr;
  const TensorFile* file = nullptr;
  int64_t count = 0;  // of NaNs and infinities
  int64_t first = 0;  // index of the first, row-major
};

// Tensors of F32, F16 or BF16 that hold a NaN or an infinity, in the table's order. Reads every
// page of the files that has data: holes of sparse files are zeros and are passed over.
std::vector<NonFiniteTensor> FindNonFinite(const TensorTable& table);

struct NonFiniteCount {
  int64_t count = 0;
  int64_t first = -1;  // index; -1 when all are finite
};
// The same for elements in memory. Precondition: `dtype` is F32, F16 or BF16 and `bytes` holds
// whole elements; any alignment.
NonFiniteCount CountNonFinite(Span<const uint8_t> bytes, DType dtype);

}  // namespace segue::model
