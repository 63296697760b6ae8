#include "device/transfer.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "device/gpu.h"

namespace segue {
namespace {

// True where the copy was a host's and is done.
bool CopiedOnHost(void* to, const void* from, int64_t bytes, const Stream& stream) {
  if (bytes == 0) return true;
  if (stream.device() != DeviceKind::kCpu) return false;
  std::memcpy(to, from, static_cast<size_t>(bytes));
  return true;
}

float WidenedAt(const char* element, DType dtype) {
  if (dtype == DType::kBF16) {
    uint16_t half = 0;
    std::memcpy(&half, element, sizeof(half));
    return BF16ToFloat(half);
  }
  float value = 0.0f;
  std::memcpy(&value, element, sizeof(value));
  return value;
}

}  // namespace

Status CopyIn(void* to, const void* from, int64_t bytes, const Stream& stream) {
  if (CopiedOnHost(to, from, bytes, stream)) return {};
  return Upload(to, from, bytes, stream.cuda_stream());
}

Status CopyOut(void* to, const void* from, int64_t bytes, const Stream& stream) {
  if (CopiedOnHost(to, from, bytes, stream)) return {};
  return ReadBack(to, from, bytes, stream.cuda_stream());
}

Status CopyWithin(void* to, const void* from, int64_t bytes, const Stream& stream) {
  if (CopiedOnHost(to, from, bytes, stream)) return {};
  const DevicePieces target = {.data = to, .stride = bytes};
  const DevicePieces source = {.data = const_cast<void*>(from), .stride = bytes};
  return CopyPieces(target, source, bytes, 1, stream.cuda_stream());
}

Status CopyMatrix(const MatrixView& to, const MatrixView& from, const Stream& stream) {
  const auto element = static_cast<int64_t>(SizeOf(to.dtype));
  const int64_t bytes = to.cols * element;
  const DevicePieces target = {.data = to.data, .stride = to.stride * element};
  const DevicePieces source = {.data = from.data, .stride = from.stride * element};
  if (stream.device() != DeviceKind::kCpu) {
    return CopyPieces(target, source, bytes, to.rows, stream.cuda_stream());
  }
  if (bytes == 0) return {};
  for (int64_t row = 0; row < to.rows; ++row) {
    std::memcpy(static_cast<char*>(target.data) + row * target.stride,
                static_cast<const char*>(source.data) + row * source.stride,
                static_cast<size_t>(bytes));
  }
  return {};
}

Result<std::vector<float>> ReadMatrix(const MatrixView& matrix, const Stream& stream) {
  const auto element = static_cast<int64_t>(SizeOf(matrix.dtype));
  const int64_t all = matrix.rows == 0 ? 0 : (matrix.rows - 1) * matrix.stride + matrix.cols;
  std::vector<char> bytes(static_cast<size_t>(all * element));
  SEGUE_RETURN_IF_ERROR(CopyOut(bytes.data(), matrix.data, all * element, stream));
  std::vector<float> values;
  values.reserve(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const char* from = bytes.data() + row * matrix.stride * element;
    for (int64_t col = 0; col < matrix.cols; ++col, from += element) {
      values.push_back(WidenedAt(from, matrix.dtype));
    }
  }
  return values;
}

Status WriteMatrix(const MatrixView& matrix, Span<const float> values, const Stream& stream) {
  const auto count = static_cast<int64_t>(values.size());
  if (matrix.dtype == DType::kF32) return CopyIn(matrix.data, values.data(), 4 * count, stream);
  std::vector<uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), FloatToBF16);
  return CopyIn(matrix.data, rounded.data(), 2 * count, stream);
}

}  // namespace segue
