#include "kernels/attention_schedule.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace segue::kernels {
namespace {

struct Parts {
  ScheduleHeader* header;
  SequenceRecord* sequences;
  SegmentRecord* segments;
  WorkItem* work;
};

Parts PartsOf(const ScheduleShape& shape, void* schedule) {
  auto* bytes = static_cast<uint8_t*>(schedule);
  return {reinterpret_cast<ScheduleHeader*>(bytes),
          reinterpret_cast<SequenceRecord*>(bytes + SequencesOffset()),
          reinterpret_cast<SegmentRecord*>(bytes + SegmentsOffset(shape.capacity)),
          reinterpret_cast<WorkItem*>(bytes + WorkOffset(shape.capacity))};
}

// The first mistake in order of sequences, or the totals' own.
ScheduleHeader Check(const ScheduleShape& shape, const std::vector<SequenceSums>& sums) {
  int64_t tiles = 0;
  int64_t q_rows = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].error != kScheduleOk) return {0, 0, sums[i].error, static_cast<int32_t>(i)};
    tiles += sums[i].query_tiles * shape.q_heads;
    q_rows += sums[i].q_rows;
  }
  const int32_t none = static_cast<int32_t>(sums.size());
  if (q_rows > shape.lse_rows) return {0, 0, kScheduleLse, none};
  ScheduleHeader header{0, shape.causal, kScheduleOk, none};
  for (const SequenceSums& s : sums) {
    if (SequenceCost(s, shape.causal) != SequenceCost(sums[0], shape.causal)) header.dynamic = 1;
  }
  const int64_t work = tiles + SplitTiles(tiles, shape.ctas, header.dynamic);
  if (work > shape.capacity.work) return {0, 0, kScheduleWork, none};
  header.work = static_cast<int32_t>(work);
  return header;
}

void WriteWork(const ScheduleShape& shape, const SegmentRows* rows,
               const std::vector<SequenceSums>& sums, const ScheduleHeader& header,
               WorkItem* work) {
  std::vector<int32_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return Precedes(SequenceCost(sums[a], shape.causal), a, SequenceCost(sums[b], shape.causal), b);
  });
  std::vector<WorkItem> tiles;
  for (const int32_t sequence : order) {
    const int32_t count = static_cast<int32_t>(sums[sequence].query_tiles);
    for (int32_t i = 0; i < count * shape.q_heads; ++i) {
      tiles.push_back(SequenceWork(sequence, rows + int64_t{sequence} * shape.capacity.segments,
                                   shape, count, i));
    }
  }
  const int32_t total = static_cast<int32_t>(tiles.size());
  const int32_t split = SplitTiles(total, shape.ctas, header.dynamic);
  for (int32_t i = 0; i < header.work; ++i) {
    const SplitEntry entry = FindSplit(i, total, split);
    work[i] = HalfOf(tiles[entry.tile], entry.half);
  }
}

}  // namespace

void BuildSchedule(const ScheduleShape& shape, const SegmentRows* rows, int32_t sequences,
                   void* schedule) {
  const Parts parts = PartsOf(shape, schedule);
  const ScheduleCapacity& capacity = shape.capacity;
  std::memset(schedule, 0, static_cast<size_t>(WorkOffset(capacity)));
  for (int32_t i = 0; i < capacity.work; ++i) parts.work[i] = {-1, 0, 0, 0};
  if (sequences < 0 || sequences > capacity.sequences) {
    *parts.header = {0, 0, kScheduleSequences, 0};
    return;
  }
  std::vector<SequenceSums> sums(sequences);
  for (int32_t i = 0; i < sequences; ++i) {
    sums[i] = SumSequence(rows + int64_t{i} * capacity.segments, shape);
  }
  *parts.header = Check(shape, sums);
  if (parts.header->error != kScheduleOk) return;

  int32_t lse_begin = 0;
  for (int32_t i = 0; i < sequences; ++i) {
    parts.sequences[i] = {static_cast<int32_t>(sums[i].q_rows),
                          static_cast<int32_t>(sums[i].kv_rows),
                          static_cast<int32_t>(sums[i].key_extent), lse_begin};
    lse_begin += static_cast<int32_t>(sums[i].q_rows);
    for (int32_t s = 0; s < capacity.segments; ++s) {
      const int64_t at = int64_t{i} * capacity.segments;
      parts.segments[at + s] = MakeSegment(rows + at, s);
    }
  }
  WriteWork(shape, rows, sums, *parts.header, parts.work);
}

}  // namespace segue::kernels
