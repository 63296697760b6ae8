// How a sequence's segments become the one tensor each that cuDNN reads and writes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "kernels/attention_cudnn.h"
#include "segue/attention.h"
#include "segue/status.h"

namespace segue::attention {

// Rows of one tensor set that follow one another.
struct RowPiece {
  int32_t source = 0;
  int32_t begin = 0;
  int32_t rows = 0;

  bool operator==(const RowPiece&) const = default;
};

// A sequence's query or key rows, in order, where segments that touch in one tensor are one piece.
using RowPieces = std::vector<RowPiece>;
RowPieces QueryPieces(Span<const SegmentRows> segments);
RowPieces KeyPieces(Span<const SegmentRows> segments);
int64_t CountRows(const RowPieces& pieces);
// Rows [begin, begin + count) of them.
RowPieces SlicePieces(const RowPieces& pieces, int64_t begin, int64_t count);

// A tensor [rows, heads, head_dim] of 16-bit elements.
struct CudnnOperand {
  void* data = nullptr;
  kernels::CudnnStrides strides;
};

// One of Q, K, V and O through all tensor sets, and room to put its rows together.
class CudnnTensor {
 public:
  // `scratch` holds CountRows rows of heads x head_dim elements, aligned to 16.
  CudnnTensor(Span<const TensorSet> sets, RowsView TensorSet::* view, int64_t heads,
              int64_t head_dim, void* scratch)
      : sets_(sets), view_(view), heads_(heads), head_dim_(head_dim), scratch_(scratch) {}

  // Whether these rows can be used where they lie: one piece, whose pointer and strides are
  // multiples of 16 bytes.
  bool InPlace(const RowPieces& rows) const;
  // Where they lie, or the scratch.
  CudnnOperand Operand(const RowPieces& rows) const;
  // Rows that overlap cannot be copied. Error (kUnsupported): they do.
  Status Check(const RowPieces& rows, const char* name) const;

  // Enqueue copies into the scratch, and out of it.
  Status Gather(const RowPieces& rows, void* stream) const;
  Status Scatter(const RowPieces& rows, void* stream) const;
  Status SetToZero(const RowPieces& rows, void* stream) const;

 private:
  struct Strided;
  // The pieces that a copy of `piece` falls into: one a row, or one a row and head.
  Strided Split(const RowPiece& piece) const;
  const RowsView& ViewOf(const RowPiece& piece) const { return sets_[piece.source].*view_; }
  int64_t Width() const { return heads_ * head_dim_; }
  Status Move(const RowPieces& rows, bool gather, void* stream) const;

  Span<const TensorSet> sets_;
  RowsView TensorSet::* view_;
  int64_t heads_;
  int64_t head_dim_;
  void* scratch_;
};

}  // namespace segue::attention
