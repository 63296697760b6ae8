#include "model/weights/weight_reads.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <tuple>

#include "model/weights/weight_lane.h"

namespace segue::model {
namespace {

int64_t ElementBytes(const WeightTransfer& transfer) {
  return static_cast<int64_t>(SizeOf(transfer.source.view.dtype));
}

// Elements of the source from the first wanted one to the last.
int64_t SpannedElements(const WeightExtent& extent) {
  if (extent.elements() == 0) return 0;
  return (extent.rows - 1) * extent.stride + extent.cols;
}

int64_t BeginByte(const WeightTransfer& transfer) {
  return transfer.source.file_offset + transfer.extent.first * ElementBytes(transfer);
}

float Widen(float value) { return value; }
float Widen(uint16_t half) { return F16ToFloat(half); }

// `to` begins at or before `from` and may overlap it: a block is read before any of it is written.
template <typename Element>
void RoundElements(const uint8_t* from, int64_t count, uint8_t* to) {
  constexpr int64_t kBlock = 1024;  // both arrays stay in the first cache
  Element elements[kBlock];
  uint16_t rounded[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    std::memcpy(elements, from + begin * static_cast<int64_t>(sizeof(Element)),
                static_cast<size_t>(block) * sizeof(Element));
    for (int64_t i = 0; i < block; ++i) rounded[i] = FloatToBF16(Widen(elements[i]));
    std::memcpy(to + begin * 2, rounded, static_cast<size_t>(block) * 2);
  }
}

void RoundOrMove(DType dtype, const uint8_t* from, int64_t count, uint8_t* to) {
  if (dtype == DType::kF32) return RoundElements<float>(from, count, to);
  if (dtype == DType::kF16) return RoundElements<uint16_t>(from, count, to);
  if (from != to) std::memmove(to, from, static_cast<size_t>(count) * 2);
}

}  // namespace

int64_t TargetElement(const WeightExtent& extent, int64_t index) {
  if (extent.rows <= 1) return std::min(index, extent.cols);
  return index / extent.stride * extent.cols + std::min(index % extent.stride, extent.cols);
}

int64_t PieceOffset(const WeightTransfer& transfer, const WeightRead::Piece& piece) {
  return BeginByte(transfer) + piece.first * ElementBytes(transfer);
}

int64_t CompactPiece(const WeightTransfer& transfer, const WeightRead::Piece& piece,
                     uint8_t* data) {
  const WeightExtent& extent = transfer.extent;
  const DType dtype = transfer.source.view.dtype;
  const int64_t stride = extent.rows <= 1 ? std::max<int64_t>(extent.cols, 1) : extent.stride;
  int64_t made = 0;
  for (int64_t at = piece.first; at < piece.first + piece.count;) {
    const int64_t row_end = (at / stride + 1) * stride;
    const int64_t wanted_end = row_end - stride + extent.cols;
    const int64_t end = std::min(wanted_end, piece.first + piece.count);
    if (at < end) {
      RoundOrMove(dtype, data + (at - piece.first) * ElementBytes(transfer), end - at,
                  data + made * 2);
      made += end - at;
    }
    at = row_end;
  }
  return made;
}

std::vector<WeightRead> PlanReads(Span<const WeightTransfer> transfers, int64_t chunk_bytes) {
  // Reading past what nobody wants is cheaper than another request up to about this much: a disk
  // that gives 2 GB/s gives it in the 100 us that a request costs.
  constexpr int64_t kGap = 256 << 10;
  std::vector<size_t> order(transfers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    const WeightTransfer& transfer = transfers[i];
    const TensorFile* file = transfer.source.file;
    return std::tuple(file == nullptr ? std::string_view() : std::string_view(file->path()),
                      BeginByte(transfer), i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });

  std::vector<WeightRead> reads;
  for (const size_t i : order) {
    const WeightTransfer& transfer = transfers[i];
    if (transfer.source.random()) continue;
    const TensorFile* file = transfer.source.file;
    const int64_t element = ElementBytes(transfer);
    const int64_t begin = BeginByte(transfer);
    const int64_t end = begin + SpannedElements(transfer.extent) * element;
    for (int64_t at = begin; at < end;) {
      const bool joins = !reads.empty() && file != nullptr && reads.back().file == file &&
                         at >= reads.back().end && at - reads.back().end <= kGap &&
                         at < reads.back().begin + chunk_bytes;
      if (!joins) {
        reads.push_back({.file = file,
                         .begin = file == nullptr ? at : at / kReadAlignment * kReadAlignment,
                         .end = at});
      }
      WeightRead& read = reads.back();
      read.end = std::min(end, read.begin + chunk_bytes);
      read.pieces.push_back({i, (at - begin) / element, (read.end - at) / element});
      at = read.end;
    }
  }
  return reads;
}

}  // namespace segue::model
