#include "kernels/schedule_builder.h"

#include <algorithm>

namespace segue::kernels {
namespace {

static_assert((kMaxSequences & (kMaxSequences - 1)) == 0, "a key's low bits are the sequence");

// MakeSegment of each, its sums in one pass.
void WriteSegments(const SegmentRows* rows, int32_t segments, int32_t causal,
                   SegmentRecord* records) {
  int32_t q_position = 0;
  int32_t kv_position = 0;
  int32_t key_begin = 0;
  for (int32_t s = 0; s < segments; ++s) {
    const SegmentRows& from = rows[s];
    records[s] = {from.source,   from.q_begin, from.q_rows, q_position,
                  from.kv_begin, from.kv_rows, kv_position, key_begin};
    q_position += from.q_rows;
    kv_position += from.kv_rows;
    key_begin += DivideUp(from.kv_rows, kKeyGroup) * kKeyGroup;
  }
  if (causal != 0 || segments == 1) return;
  for (int32_t s = 0; s < segments; ++s) {
    records[s].key_begin = MakeSegment(rows, segments, causal, s).key_begin;
  }
}

}  // namespace

const ScheduleHeader& ScheduleBuilder::Measure(const ScheduleShape& shape, const SegmentRows* rows,
                                               int32_t sequences) {
  shape_ = shape;
  rows_ = rows;
  sums_.clear();
  const auto fail = [this](ScheduleError error, int32_t sequence) -> const ScheduleHeader& {
    header_ = {0, 0, error, sequence};
    return header_;
  };
  if (sequences < 0 || sequences > shape.capacity.sequences) return fail(kScheduleSequences, 0);
  int64_t tiles = 0;
  int64_t q_rows = 0;
  int32_t dynamic = shape.causal;
  int32_t common_cost = 0;
  for (int32_t i = 0; i < sequences; ++i) {
    sums_.push_back(SumSequence(rows + int64_t{i} * shape.capacity.segments, shape));
    const SequenceSums& sums = sums_.back();
    if (sums.error != kScheduleOk) return fail(static_cast<ScheduleError>(sums.error), i);
    tiles += sums.query_tiles * shape.q_heads;
    q_rows += sums.q_rows;
    const int32_t cost = SequenceCost(sums, shape.causal);
    if (!Weighs(cost, sums.query_tiles)) continue;
    if (common_cost != 0 && cost != common_cost) dynamic = 1;
    common_cost = cost;
  }
  if (q_rows > shape.lse_rows) return fail(kScheduleLse, sequences);
  const int64_t work = tiles + SplitTiles(tiles, shape.ctas, dynamic);
  if (work > shape.capacity.work) return fail(kScheduleWork, sequences);
  header_ = {static_cast<int32_t>(work), dynamic, kScheduleOk, sequences};
  return header_;
}

void ScheduleBuilder::Write(const ScheduleParts& parts) {
  *parts.header = header_;
  const auto sequences = static_cast<int32_t>(sums_.size());
  const int32_t segments = shape_.capacity.segments;
  int32_t lse_begin = 0;
  int64_t tiles = 0;
  order_.clear();
  for (int32_t i = 0; i < sequences; ++i) {
    const SequenceSums& sums = sums_[i];
    parts.sequences[i] = {static_cast<int32_t>(sums.q_rows), static_cast<int32_t>(sums.kv_rows),
                          static_cast<int32_t>(sums.key_extent), lse_begin};
    lse_begin += static_cast<int32_t>(sums.q_rows);
    SegmentRecord* records = parts.segments + int64_t{i} * segments;
    WriteSegments(rows_ + int64_t{i} * segments, segments, shape_.causal, records);
    tiles += sums.query_tiles * shape_.q_heads;
    // Ascending keys are the order of Precedes: falling cost, then rising number.
    order_.push_back(-int64_t{SequenceCost(sums, shape_.causal)} * kMaxSequences + i);
  }
  std::sort(order_.begin(), order_.end());
  WorkItem* work = parts.work;
  for (const int64_t key : order_) {
    work = WriteSequence(static_cast<int32_t>(key & (kMaxSequences - 1)), work);
  }
  // Halves take the place of the last tiles, from the end, so that none is overwritten unread.
  const int32_t split = SplitTiles(tiles, shape_.ctas, header_.dynamic);
  const int64_t whole = tiles - split;
  for (int64_t tile = tiles - 1; tile >= whole; --tile) {
    const WorkItem item = parts.work[tile];
    parts.work[whole + 2 * (tile - whole)] = HalfOf(item, 0);
    parts.work[whole + 2 * (tile - whole) + 1] = HalfOf(item, 1);
  }
}

// SequenceWork for every index: one head's tiles are found once and repeated.
WorkItem* ScheduleBuilder::WriteSequence(int32_t sequence, WorkItem* work) {
  const SegmentRows* rows = rows_ + int64_t{sequence} * shape_.capacity.segments;
  const int32_t heads = shape_.q_heads;
  tiles_.clear();
  for (int32_t s = 0; s < shape_.capacity.segments; ++s) {
    for (int32_t row = 0; row < rows[s].q_rows; row += kQueryTile) {
      tiles_.push_back({sequence, s, row, std::min(rows[s].q_rows - row, kQueryTile)});
    }
  }
  if (shape_.causal != 0) {
    for (auto tile = tiles_.rbegin(); tile != tiles_.rend(); ++tile) {
      for (int32_t head = 0; head < heads; ++head) {
        *work++ = {tile->sequence, tile->segment, tile->row, tile->head_and_rows + head * 256};
      }
    }
    return work;
  }
  for (int32_t head = 0; head < heads; ++head) {
    for (const WorkItem& tile : tiles_) {
      *work++ = {tile.sequence, tile.segment, tile.row, tile.head_and_rows + head * 256};
    }
  }
  return work;
}

}  // namespace segue::kernels
