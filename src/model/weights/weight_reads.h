// Which bytes of which files are read, in which order, and what becomes of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/span.h"
#include "model/weights/weight_source.h"

namespace segue::model {

// A placed weight (or slice) that waits for its elements.
struct WeightTransfer {
  WeightSource source;
  WeightExtent extent;
  uint16_t* to = nullptr;  // bfloat16, contiguous, extent.elements() of them
};

// One read: bytes [begin, end) of a file, or of the memory of one source. It holds whole elements.
struct WeightRead {
  struct Piece {
    size_t transfer = 0;  // index
    // Elements of the source, counted from the extent's first, gaps between rows included.
    int64_t first = 0;
    int64_t count = 0;
  };

  const TensorFile* file = nullptr;  // null: memory, the source of the one piece
  int64_t begin = 0;                 // of a file: a multiple of kReadAlignment
  int64_t end = 0;
  std::vector<Piece> pieces;  // ascending; bytes between them are not wanted
};

// Reads of at most `chunk_bytes` for all transfers that are not random, file after file, each file
// from its beginning to its end. Neighbouring tensors share a read. Precondition: `chunk_bytes` is
// a positive multiple of kReadAlignment; sources are F32, F16 or BF16 and aligned for it.
std::vector<WeightRead> PlanReads(Span<const WeightTransfer> transfers, int64_t chunk_bytes);

// The element of the target that source element `index` (counted from the extent's first) becomes,
// or the next one where it is not wanted.
int64_t TargetElement(const WeightExtent& extent, int64_t index);

// Turns the piece, which lies at `data` as in the source, into the target's bfloat16 elements, in
// place. Returns how many there are. Rounds to nearest, ties to even.
int64_t CompactPiece(const WeightTransfer& transfer, const WeightRead::Piece& piece, uint8_t* data);

// Bytes from the beginning of the file (or memory) where a piece begins.
int64_t PieceOffset(const WeightTransfer& transfer, const WeightRead::Piece& piece);

}  // namespace segue::model
