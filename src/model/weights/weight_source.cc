#include "model/weights/weight_source.h"

namespace segue::model {
namespace {

Error SliceError(const WeightSource& source, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "slice weight",
          .argument = source.name,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

}  // namespace

Result<WeightExtent> ExtentOf(const WeightSource& source, const WeightSlice& slice) {
  const Shape& shape = source.view.shape;
  const bool columns = slice.axis == WeightSlice::Axis::kColumns;
  if (columns ? shape.rank() != 2 : shape.rank() < 1) {
    return SliceError(source, shape.ToString(), columns ? "a matrix" : "a vector or more");
  }
  const int64_t extent = shape[columns ? 1 : 0];
  const bool begins = slice.begin >= 0 && slice.begin <= extent;
  const int64_t rest = begins ? extent - slice.begin : 0;
  const int64_t count = slice.count == WeightSlice::kAll ? rest : slice.count;
  if (!begins || count < 0 || count > rest) {
    return SliceError(source,
                      std::to_string(count) + (columns ? " columns" : " rows") + " from " +
                          std::to_string(slice.begin),
                      "a part of " + shape.ToString());
  }
  if (columns && count < extent) {
    return WeightExtent{.first = slice.begin,
                        .rows = shape[0],
                        .cols = count,
                        .stride = extent,
                        .shape = {shape[0], count}};
  }
  Shape part;
  part.Append(columns ? shape[0] : count);
  for (int axis = 1; axis < shape.rank(); ++axis) part.Append(shape[axis]);
  const int64_t row = extent == 0 ? 0 : shape.NumElements() / shape[0];
  return WeightExtent{.first = columns ? 0 : slice.begin * row,
                      .rows = 1,
                      .cols = part.NumElements(),
                      .stride = part.NumElements(),
                      .shape = part};
}

}  // namespace segue::model
