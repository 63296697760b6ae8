// Rows between a padded batch and a packed tensor, moved as bytes: NaN payloads, signed zeros and
// infinities arrive as they left.
//
// A padded batch is virtual: for each sequence its prefix rows (text), then its main rows (image),
// numbered through as if the two tensors were concatenated, which they never are. Row
// b * (prefix_rows + main_rows) + s is row s of sequence b. Without a prefix it is one tensor.
// pack_index.h makes the indices from masks or lengths. docs/kernels/packing.md
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::kernels {

inline constexpr int32_t kMaxPackTensors = 3;  // Q, K and V

// [batch, rows, row_elements]: row r of sequence b begins at data + b * batch_stride +
// r * row_stride elements. May be null where there are no rows.
struct PaddedRows {
  void* data = nullptr;
  int64_t row_stride = 0;    // at least row_elements; a slice of a fused projection needs no copy
  int64_t batch_stride = 0;  // 0: rows * row_stride
};

struct PackTensor {
  PaddedRows prefix;              // [batch, prefix_rows, row_elements]
  PaddedRows main;                // [batch, main_rows, row_elements]
  void* packed = nullptr;         // [packed_rows, row_elements]
  int64_t packed_row_stride = 0;  // elements, at least row_elements
  int64_t row_elements = 0;       // heads x head_dim, a multiple of 8, at most 2^20
};

// All pointers are memory of the context's device. What is written overlaps nothing else. Up to
// 2^31 - 1 padded and packed rows each; offsets have 64 bits.
struct PackParams {
  PackTensor tensors[kMaxPackTensors];  // moved together in one launch
  int32_t tensor_count = 0;
  int64_t batch = 0;
  int64_t prefix_rows = 0;  // rows of each sequence in `prefix`; 0: there is none
  int64_t main_rows = 0;    // rows of each sequence in `main`
  // PackRows: [packed_rows] of index_type, the padded row that each packed row comes from.
  const void* index = nullptr;
  // ScatterRows: [batch * (prefix_rows + main_rows)] of index_type, the packed row that each padded
  // row comes from; -1: zeros.
  const void* inverse = nullptr;
  DType index_type = DType::kI32;  // kI32 or kI64
  int64_t packed_rows = 0;         // rows that the packed tensors have
  // One value, or null: all of packed_rows. Packed rows from here on are neither read nor written.
  // On a GPU a launch, captured or not, follows the value it finds; one outside [0, packed_rows]
  // counts as the nearer bound. The last of cu_seqlens will do.
  const int32_t* packed_count = nullptr;
  DType element_type = DType::kBF16;  // kBF16, kF16 or kF32
  // GPU only, one value or null: set to 1 by a call that meets an index out of range, else left.
  int32_t* error = nullptr;
};

// Where row `row` of the padded batch begins in `tensor`. Precondition: it exists.
inline char* PaddedRow(const PackParams& params, const PackTensor& tensor, int64_t row) {
  const int64_t sequence = row / (params.prefix_rows + params.main_rows);
  const int64_t in_sequence = row % (params.prefix_rows + params.main_rows);
  const bool in_prefix = in_sequence < params.prefix_rows;
  const PaddedRows& rows = in_prefix ? tensor.prefix : tensor.main;
  const int64_t count = in_prefix ? params.prefix_rows : params.main_rows;
  const int64_t batch_stride = rows.batch_stride == 0 ? count * rows.row_stride : rows.batch_stride;
  const int64_t in_tensor = in_prefix ? in_sequence : in_sequence - params.prefix_rows;
  const int64_t element = sequence * batch_stride + in_tensor * rows.row_stride;
  return static_cast<char*>(rows.data) +
         element * static_cast<int64_t>(SizeOf(params.element_type));
}

// Where row `row` of the packed tensor begins.
inline char* PackedRow(const PackParams& params, const PackTensor& tensor, int64_t row) {
  return static_cast<char*>(tensor.packed) +
         row * tensor.packed_row_stride * static_cast<int64_t>(SizeOf(params.element_type));
}

// Entry i of `index` or `inverse`, in host memory.
inline int64_t IndexAt(const void* index, DType type, int64_t i) {
  return type == DType::kI64 ? static_cast<const int64_t*>(index)[i]
                             : static_cast<const int32_t*>(index)[i];
}

// packed[t] = padded[index[t]] for t < packed_count; other packed rows stay as they are.
// Errors, before anything is written: shapes, strides, types or null pointers that do not fit; on
// the CPU also an index out of range, which gives a row of zeros on a GPU; a refused launch.
Status PackRows(const PackParams& params, const Context& context);

// padded[v] = packed[inverse[v]], or zeros where inverse[v] is -1. Every padded row is written, and
// once. Errors: those of PackRows; indices from packed_count on are out of range.
Status ScatterRows(const PackParams& params, const Context& context);

}  // namespace segue::kernels
