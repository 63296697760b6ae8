#include "kernels/reference.h"

namespace segue::kernels {
Status RefPackRows(const PackParams& params, const Context&) {
  const int64_t count = params.packed_count == nullptr ? params.packed_rows : *params.packed_count;
  for (int64_t row = 0; row < count; ++row) {
    const int64_t padded = IndexAt(params.index, params.index_type, row);
    for (int32_t i = 0; i < params.tensor_count; ++i) {
      const PackTensor& tensor = params.tensors[i];
      const auto size = static_cast<int64_t>(SizeOf(params.element_type));
      const char* from = PaddedRow(params, tensor, padded);
      char* to = PackedRow(params, tensor, row);
      for (int64_t byte = 0; byte < tensor.row_elements * size; ++byte) to[byte] = from[byte];
    }
  }
  return {};
}

Status RefScatterRows(const PackParams& params, const Context&) {
  const int64_t count = params.batch * (params.prefix_rows + params.main_rows);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t packed = IndexAt(params.inverse, params.index_type, row);
    for (int32_t i = 0; i < params.tensor_count; ++i) {
      const PackTensor& tensor = params.tensors[i];
      const auto size = static_cast<int64_t>(SizeOf(params.element_type));
      const char* from = packed < 0 ? nullptr : PackedRow(params, tensor, packed);
      char* to = PaddedRow(params, tensor, row);
      for (int64_t byte = 0; byte < tensor.row_elements * size; ++byte) {
        to[byte] = from == nullptr ? char{0} : from[byte];
      }
    }
  }
  return {};
}

}  // namespace segue::kernels
