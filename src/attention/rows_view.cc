#include "attention/rows_view.h"

#include <algorithm>
#include <array>

#include "attention/plan_check.h"

namespace segue::attention {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 62;

struct Dimension {
  const char* name;
  int64_t count;
  int64_t stride;
};

std::array<Dimension, 3> Dimensions(const ViewShape& shape, const RowsView& view) {
  return {{{"heads", shape.heads, HeadStride(view, shape.head_dim)},
           {"rows", shape.rows, view.row_stride},
           {"sequences", shape.batch, shape.batch_stride}}};
}

std::string Apart(const Dimension& dimension) {
  return std::string(dimension.name) + " " + std::to_string(dimension.stride) + " elements apart";
}

// Adds the way to a dimension's last entry; false when that leaves the range.
bool Extend(const Dimension& dimension, int64_t& extent) {
  int64_t reach = 0;
  return !__builtin_mul_overflow(dimension.count - 1, dimension.stride, &reach) &&
         !__builtin_add_overflow(extent, reach, &extent) && extent <= kMostElements;
}

}  // namespace

RowsView RowsFrom(const RowsView& view, int64_t row, int64_t element_bytes) {
  RowsView result = view;
  if (view.data != nullptr) {
    result.data = static_cast<char*>(view.data) + row * view.row_stride * element_bytes;
  }
  return result;
}

Status CheckInput(const char* operation, const ViewShape& shape, const RowsView& view) {
  if (shape.rows < 0) {
    return Invalid(operation, shape.name, std::to_string(shape.rows) + " rows", "0 or more");
  }
  if (shape.rows == 0 || shape.batch == 0) return {};
  if (view.data == nullptr) {
    return Invalid(operation, shape.name, "null", std::to_string(shape.rows) + " rows");
  }
  int64_t extent = shape.head_dim;
  for (const Dimension& dimension : Dimensions(shape, view)) {
    if (dimension.count <= 1) continue;
    if (dimension.stride < 0) {
      return Invalid(operation, shape.name, Apart(dimension), "0 or more");
    }
    if (!Extend(dimension, extent)) {
      return Invalid(operation, shape.name, Apart(dimension), "at most 2^62 elements in all");
    }
  }
  return {};
}

Status CheckOutput(const char* operation, const ViewShape& shape, const RowsView& view) {
  SEGUE_RETURN_IF_ERROR(CheckInput(operation, shape, view));
  if (shape.rows == 0 || shape.batch == 0) return {};
  std::array<Dimension, 3> nested = Dimensions(shape, view);
  std::sort(nested.begin(), nested.end(), [](const Dimension& inner, const Dimension& outer) {
    return inner.stride < outer.stride;
  });
  int64_t extent = shape.head_dim;
  for (const Dimension& dimension : nested) {
    if (dimension.count <= 1) continue;
    if (dimension.stride < extent) {
      return Invalid(operation, shape.name, Apart(dimension),
                     "at least " + std::to_string(extent) + ", so that outputs do not overlap");
    }
    Extend(dimension, extent);  // in range: checked above
  }
  return {};
}

}  // namespace segue::attention
