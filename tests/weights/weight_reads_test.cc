// Which bytes are read for which weights.
#include "model/weights/weight_reads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/weights/weight_lane.h"
#include "weights/weight_rig.h"

namespace segue::model {
namespace {

WeightTransfer TransferOf(const WeightPart& part) {
  const Result<WeightExtent> extent = ExtentOf(part.source, part.slice);
  EXPECT_TRUE(extent.ok());
  return {.source = part.source, .extent = *extent};
}

TEST(WeightExtent, OfRowsColumnsAndAll) {
  const WeightSource matrix{.name = "m", .view = {.shape = {6, 10}}};
  const auto all = ExtentOf(matrix, {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->elements(), 60);
  EXPECT_TRUE(all->contiguous());
  const auto rows = ExtentOf(matrix, WeightSlice::Rows(2, 3));
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->first, 20);
  EXPECT_EQ(rows->elements(), 30);
  EXPECT_EQ(rows->shape, (Shape{3, 10}));
  const auto columns = ExtentOf(matrix, WeightSlice::Columns(4, 5));
  ASSERT_TRUE(columns.ok());
  EXPECT_EQ(columns->first, 4);
  EXPECT_FALSE(columns->contiguous());
  EXPECT_EQ(columns->shape, (Shape{6, 5}));
  EXPECT_TRUE(ExtentOf(matrix, WeightSlice::Columns(0, 10))->contiguous());
  const WeightSource kernel{.name = "k", .view = {.shape = {4, 3, 1, 2, 2}}};
  EXPECT_EQ(ExtentOf(kernel, WeightSlice::Rows(1, 2))->shape, (Shape{2, 3, 1, 2, 2}));
  EXPECT_EQ(ExtentOf(kernel, WeightSlice::Rows(1, 2))->first, 12);
}

TEST(WeightExtent, RefusesWhatIsNotInside) {
  const WeightSource matrix{.name = "m", .view = {.shape = {6, 10}}};
  const WeightSource vector{.name = "v", .view = {.shape = {6}}};
  EXPECT_FALSE(ExtentOf(matrix, WeightSlice::Rows(2, 5)).ok());
  EXPECT_FALSE(ExtentOf(matrix, WeightSlice::Rows(-1, 2)).ok());
  EXPECT_FALSE(ExtentOf(matrix, WeightSlice::Rows(7, WeightSlice::kAll)).ok());
  EXPECT_FALSE(ExtentOf(matrix, WeightSlice::Columns(9, INT64_MAX)).ok());
  EXPECT_FALSE(ExtentOf(vector, WeightSlice::Columns(0, 1)).ok());
  EXPECT_FALSE(ExtentOf({.name = "scalar"}, {}).ok());
}

TEST(TargetElement, CountsWhatIsWantedBefore) {
  const WeightExtent extent{.first = 3, .rows = 4, .cols = 2, .stride = 5};
  const std::vector<int64_t> wanted = {0, 1, 2, 2, 2, 2, 3, 4, 4, 4, 4};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(TargetElement(extent, static_cast<int64_t>(i)), wanted[i]) << i;
  }
}

// Reads of every size: each wanted element is in exactly one piece, reads are in order, bounded and
// begin where disks can.
TEST(PlanReads, CoversEverythingOnce) {
  TestWeights weights;
  weights.Add("a", DType::kF32, {300, 7});
  weights.Add("unused", DType::kF32, {100000});
  weights.Add("b", DType::kBF16, {5000});
  weights.Add("c", DType::kF16, {64, 96});
  weights.Add("d", DType::kBF16, {3});
  weights.Write();
  const std::vector<WeightTransfer> transfers = {
      TransferOf(weights.Part("c", WeightSlice::Columns(10, 20))), TransferOf(weights.Part("d")),
      TransferOf(weights.Part("a")), TransferOf(weights.Part("b", WeightSlice::Rows(7, 4000))),
      TransferOf(weights.Part("a", WeightSlice::Rows(20, 100)))};
  for (const int64_t chunk : {kReadAlignment, 3 * kReadAlignment, 1024 * kReadAlignment}) {
    const std::vector<WeightRead> reads = PlanReads(transfers, chunk);
    std::vector<int64_t> made(transfers.size(), 0);
    std::vector<int64_t> next(transfers.size(), 0);
    for (const WeightRead& read : reads) {
      EXPECT_EQ(read.begin % kReadAlignment, 0);
      EXPECT_GT(read.end, read.begin);
      EXPECT_LE(read.end - read.begin, chunk);
      for (const WeightRead::Piece& piece : read.pieces) {
        const WeightTransfer& transfer = transfers[piece.transfer];
        const auto element = static_cast<int64_t>(SizeOf(transfer.source.view.dtype));
        EXPECT_EQ(piece.first, next[piece.transfer]);
        next[piece.transfer] += piece.count;
        EXPECT_GE(PieceOffset(transfer, piece), read.begin);
        EXPECT_LE(PieceOffset(transfer, piece) + piece.count * element, read.end);
        made[piece.transfer] += TargetElement(transfer.extent, piece.first + piece.count) -
                                TargetElement(transfer.extent, piece.first);
      }
    }
    for (size_t i = 0; i < transfers.size(); ++i) {
      EXPECT_EQ(made[i], transfers[i].extent.elements()) << "transfer " << i;
    }
  }
  // In one large read, but for the tensor that is wanted twice.
  const std::vector<WeightRead> reads = PlanReads(transfers, 1024 * kReadAlignment);
  EXPECT_LE(reads.size(), 4u);
}

TEST(CompactPiece, RoundsInPlace) {
  std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -3.5f, 1e-40f, 65280.0f};
  std::vector<uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  WeightTransfer transfer{.source = {.name = "w", .view = {.dtype = DType::kF32, .shape = {6}}}};
  transfer.extent = *ExtentOf(transfer.source, {});
  EXPECT_EQ(CompactPiece(transfer, {0, 0, 6}, bytes.data()), 6);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t got = 0;
    std::memcpy(&got, &bytes[i * 2], 2);
    EXPECT_EQ(got, FloatToBF16(values[i])) << i;
  }
}

}  // namespace
}  // namespace segue::model
