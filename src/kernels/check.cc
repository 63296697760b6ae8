#include "kernels/check.h"

#include <utility>

#include "base/dtype.h"

namespace segue::kernels {

Error ArgumentError(const char* op, const char* argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = op,
          .argument = argument,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

Status CheckMatrix(const char* op, const char* argument, const MatrixView& view, int64_t rows,
                   int64_t cols, const Context& context) {
  const DType wanted = context.activation_type();
  const bool reachable = view.data != nullptr || rows == 0 || cols == 0;
  if (view.rows == rows && view.cols == cols && rows >= 0 && cols >= 0 && reachable &&
      view.dtype == wanted && (view.stride >= cols || rows <= 1)) {
    return {};
  }
  return ArgumentError(
      op, argument,
      std::string(view.data == nullptr ? "null " : "") + DTypeName(view.dtype) + " [" +
          std::to_string(view.rows) + ", " + std::to_string(view.cols) + "] with rows " +
          std::to_string(view.stride) + " apart",
      DTypeName(wanted) + (" [" + std::to_string(rows) + ", " + std::to_string(cols) + "]"));
}

Status CheckWeight(const char* op, const char* argument, const WeightView& view, int64_t count) {
  const bool floating =
      view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
  if (view.present() && floating && view.shape.NumElements() == count) return {};
  return ArgumentError(
      op, argument,
      view.present() ? DTypeName(view.dtype) + (" " + view.shape.ToString()) : "nothing",
      std::to_string(count) + " elements of F32, F16 or BF16");
}

Status CheckPresent(const char* op, const char* argument, const void* pointer, int64_t count) {
  if (pointer != nullptr || count == 0) return {};
  return ArgumentError(op, argument, "null", std::to_string(count) + " elements");
}

Status CheckIndices(const char* op, const char* argument, const int32_t* index, int64_t count,
                    int64_t limit, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckPresent(op, argument, index, count));
  if (context.stream.device() != DeviceKind::kCpu) return {};
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= limit) {
      return ArgumentError(op, argument,
                           std::to_string(index[i]) + " at position " + std::to_string(i),
                           "0 to " + std::to_string(limit - 1));
    }
  }
  return {};
}

float WeightAt(const WeightView& weight, int64_t i) {
  switch (weight.dtype) {
    case DType::kBF16:
      return BF16ToFloat(static_cast<const uint16_t*>(weight.data)[i]);
    case DType::kF16:
      return F16ToFloat(static_cast<const uint16_t*>(weight.data)[i]);
    default:
      return static_cast<const float*>(weight.data)[i];
  }
}

}  // namespace segue::kernels
