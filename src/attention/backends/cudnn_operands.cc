#include "attention/backends/cudnn_operands.h"

#include <algorithm>
#include <string>

#include "device/gpu.h"

namespace segue::attention {
namespace {

constexpr int64_t kElement = 2;  // bytes of a bfloat16 or float16

void Append(RowPiece piece, RowPieces* pieces) {
  if (piece.rows == 0) return;
  if (!pieces->empty()) {
    RowPiece& last = pieces->back();
    if (last.source == piece.source && last.begin + last.rows == piece.begin) {
      last.rows += piece.rows;
      return;
    }
  }
  pieces->push_back(piece);
}

}  // namespace

RowPieces QueryPieces(Span<const SegmentRows> segments) {
  RowPieces pieces;
  for (const SegmentRows& s : segments) Append({s.source, s.q_begin, s.q_rows}, &pieces);
  return pieces;
}

RowPieces KeyPieces(Span<const SegmentRows> segments) {
  RowPieces pieces;
  for (const SegmentRows& s : segments) Append({s.source, s.kv_begin, s.kv_rows}, &pieces);
  return pieces;
}

int64_t CountRows(const RowPieces& pieces) {
  int64_t rows = 0;
  for (const RowPiece& piece : pieces) rows += piece.rows;
  return rows;
}

RowPieces SlicePieces(const RowPieces& pieces, int64_t begin, int64_t count) {
  RowPieces slice;
  for (const RowPiece& piece : pieces) {
    const int64_t skip = std::min<int64_t>(begin, piece.rows);
    const int64_t rows = std::min<int64_t>(piece.rows - skip, count);
    Append({piece.source, static_cast<int32_t>(piece.begin + skip), static_cast<int32_t>(rows)},
           &slice);
    begin -= skip;
    count -= rows;
  }
  return slice;
}

// Groups of `count` pieces of `bytes`, the same number of groups apart on both sides.
struct CudnnTensor::Strided {
  uint8_t* data = nullptr;  // in the caller's tensor
  int64_t groups = 1;       // heads, where they do not lie side by side
  int64_t group_stride = 0;
  int64_t bytes = 0;
};

CudnnTensor::Strided CudnnTensor::Split(const RowPiece& piece) const {
  const RowsView& view = ViewOf(piece);
  Strided result;
  result.data = static_cast<uint8_t*>(view.data) + piece.begin * view.row_stride * kElement;
  result.bytes = Width() * kElement;
  if (view.head_stride != head_dim_ && heads_ > 1) {
    result.groups = heads_;
    result.group_stride = view.head_stride * kElement;
    result.bytes = head_dim_ * kElement;
  }
  return result;
}

bool CudnnTensor::InPlace(const RowPieces& rows) const {
  if (rows.size() != 1) return false;
  const RowsView& view = ViewOf(rows[0]);
  const auto address = reinterpret_cast<uintptr_t>(Split(rows[0]).data);
  return address % 16 == 0 && view.head_stride % 8 == 0 &&
         (rows[0].rows == 1 || view.row_stride % 8 == 0);
}

CudnnOperand CudnnTensor::Operand(const RowPieces& rows) const {
  const int64_t count = CountRows(rows);
  if (!InPlace(rows)) {
    return {scratch_, {.batch = count * Width(), .head = head_dim_, .row = Width()}};
  }
  const RowsView& view = ViewOf(rows[0]);
  // The stride of a single row is used by nobody.
  const int64_t row = count == 1 ? Width() : view.row_stride;
  return {Split(rows[0]).data,
          {.batch = std::max(count * row, heads_ * view.head_stride),
           .head = view.head_stride,
           .row = row}};
}

Status CudnnTensor::Check(const RowPieces& rows, const char* name) const {
  if (InPlace(rows)) return {};
  for (const RowPiece& piece : rows) {
    const RowsView& view = ViewOf(piece);
    if (piece.rows == 1 || view.row_stride * kElement >= Split(piece).bytes) continue;
    return Error{
        .code = ErrorCode::kUnsupported,
        .operation = "run attention",
        .argument = "cudnn, tensor set " + std::to_string(piece.source) + ", " + name,
        .got = "rows " + std::to_string(view.row_stride * kElement) + " bytes apart",
        .wanted = "at least " + std::to_string(Split(piece).bytes) + ", to put segments together"};
  }
  return {};
}

Status CudnnTensor::Move(const RowPieces& rows, bool gather, void* stream) const {
  auto* packed = static_cast<uint8_t*>(scratch_);
  for (const RowPiece& piece : rows) {
    const Strided split = Split(piece);
    const int64_t stride = std::max(ViewOf(piece).row_stride * kElement, split.bytes);
    for (int64_t g = 0; g < split.groups; ++g) {
      const DevicePieces outside = {split.data + g * split.group_stride, stride};
      const DevicePieces inside = {packed + g * split.bytes, Width() * kElement};
      SEGUE_RETURN_IF_ERROR(CopyPieces(gather ? inside : outside, gather ? outside : inside,
                                       split.bytes, piece.rows, stream));
    }
    packed += piece.rows * Width() * kElement;
  }
  return {};
}

Status CudnnTensor::Gather(const RowPieces& rows, void* stream) const {
  return Move(rows, true, stream);
}

Status CudnnTensor::Scatter(const RowPieces& rows, void* stream) const {
  return Move(rows, false, stream);
}

Status CudnnTensor::SetToZero(const RowPieces& rows, void* stream) const {
  for (const RowPiece& piece : rows) {
    const Strided split = Split(piece);
    const int64_t stride = std::max(ViewOf(piece).row_stride * kElement, split.bytes);
    for (int64_t g = 0; g < split.groups; ++g) {
      SEGUE_RETURN_IF_ERROR(SetPiecesToZero({split.data + g * split.group_stride, stride},
                                            split.bytes, piece.rows, stream));
    }
  }
  return {};
}

}  // namespace segue::attention
