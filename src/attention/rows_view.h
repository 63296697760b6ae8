// What a RowsView says about memory: where rows and heads begin, how far they reach, and whether
// outputs would write on one another.
#pragma once

#include <cstdint>
#include <string>

#include "segue/attention.h"
#include "segue/status.h"

namespace segue::attention {

inline int64_t HeadStride(const RowsView& view, int64_t head_dim) {
  return view.head_stride == 0 ? head_dim : view.head_stride;
}

// The view from `row` on; a null pointer stays null. Precondition: the row is addressable.
RowsView RowsFrom(const RowsView& view, int64_t row, int64_t element_bytes);

// Which tensor a view is, and how large.
struct ViewShape {
  std::string name;  // the argument that an error names
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  // Of [batch, rows, heads, head_dim] tensors.
  int64_t batch = 1;
  int64_t batch_stride = 0;
};

// Inputs may repeat memory (strides of 0 or less than a row), but not reach out of it. Errors: a
// negative count; a null pointer with rows; a negative stride; an extent beyond 2^62 elements.
Status CheckInput(const char* operation, const ViewShape& shape, const RowsView& view);

// As CheckInput, and no two elements may be the same memory: heads lie inside rows, rows inside
// heads, and sequences around or between them.
Status CheckOutput(const char* operation, const ViewShape& shape, const RowsView& view);

}  // namespace segue::attention
