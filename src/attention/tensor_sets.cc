#include "attention/tensor_sets.h"

#include <string>

#include "attention/plan_check.h"
#include "attention/rows_view.h"

namespace segue::attention {
namespace {

constexpr char kRun[] = "run attention";

Status CheckOutputStrides(const ViewShape& shape, const RowsView& view) {
  const auto apart = [&shape](const char* what, int64_t stride) -> Status {
    return Invalid(kRun, shape.name, std::string(what) + std::to_string(stride) + " elements apart",
                   "at least " + std::to_string(shape.head_dim));
  };
  if (shape.rows > 1 && view.row_stride < shape.head_dim) return apart("rows ", view.row_stride);
  if (shape.rows > 0 && shape.heads > 1 && view.head_stride < shape.head_dim) {
    return apart("heads ", view.head_stride);
  }
  return {};
}

}  // namespace

Status CompleteTensors(const PlanSettings& settings, Span<TensorSet> tensors) {
  if (tensors.size() != settings.tensors.size()) {
    return Invalid(kRun, "tensors", std::to_string(tensors.size()) + " tensor sets",
                   std::to_string(settings.tensors.size()) + " as planned");
  }
  const Options& options = settings.options;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorSet& set = tensors[i];
    const TensorRows& rows = settings.tensors[i];
    const std::string where = "tensor set " + std::to_string(i);
    if (set.q_rows != rows.q_rows || set.kv_rows != rows.kv_rows) {
      return Invalid(
          kRun, where,
          std::to_string(set.q_rows) + " query and " + std::to_string(set.kv_rows) +
              " key/value rows",
          std::to_string(rows.q_rows) + " and " + std::to_string(rows.kv_rows) + " as planned");
    }
    ViewShape shape{.name = where + ", q",
                    .rows = rows.q_rows,
                    .heads = options.q_heads,
                    .head_dim = options.head_dim};
    SEGUE_RETURN_IF_ERROR(CheckInput(kRun, shape, set.q));
    shape.name.back() = 'o';
    SEGUE_RETURN_IF_ERROR(CheckInput(kRun, shape, set.o));
    set.o.head_stride = HeadStride(set.o, options.head_dim);
    SEGUE_RETURN_IF_ERROR(CheckOutputStrides(shape, set.o));
    shape.rows = rows.kv_rows;
    shape.heads = options.kv_heads;
    shape.name.back() = 'k';
    SEGUE_RETURN_IF_ERROR(CheckInput(kRun, shape, set.k));
    shape.name.back() = 'v';
    SEGUE_RETURN_IF_ERROR(CheckInput(kRun, shape, set.v));
    set.q.head_stride = HeadStride(set.q, options.head_dim);
    set.k.head_stride = HeadStride(set.k, options.head_dim);
    set.v.head_stride = HeadStride(set.v, options.head_dim);
  }
  return {};
}

}  // namespace segue::attention
