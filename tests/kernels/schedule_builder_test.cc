// The host's builder against the functions that it shares with the device, on random layouts.
#include "kernels/schedule_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace segue::kernels {
namespace {

struct Layout {
  ScheduleShape shape{};
  std::vector<SegmentRows> rows;
  int32_t sequences = 0;
};

Layout RandomLayout(std::mt19937& random) {
  const auto below = [&random](int32_t count) { return static_cast<int32_t>(random() % count); };
  Layout layout;
  layout.sequences = below(24);
  const int32_t segments = 1 + below(5);
  const bool equal = below(3) == 0;
  layout.shape.capacity = {std::max(1, layout.sequences + below(3)), segments, 0};
  layout.shape.q_heads = 1 + below(6);
  layout.shape.causal = below(2);
  layout.shape.ctas = 1 + below(140);
  layout.shape.sources = 1 + below(kMaxSources);
  for (SourceRows& rows : layout.shape.source_rows) rows = {9000, 9000};
  layout.shape.lse_rows = INT32_MAX;
  const int32_t edges[] = {0, 0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 175, 176, 177, 353, 1000};
  const auto length = [&] { return edges[random() % std::size(edges)]; };
  int64_t q_rows = 0;
  for (int32_t i = 0; i < layout.sequences * segments; ++i) {
    if (equal && i >= segments) {
      layout.rows.push_back(layout.rows[i - segments]);
    } else {
      layout.rows.push_back(
          {below(layout.shape.sources), below(5000), length(), below(5000), length()});
    }
    q_rows += layout.rows.back().q_rows;
  }
  layout.shape.capacity.work =
      static_cast<int32_t>(MaxWork(q_rows, int64_t{layout.sequences} * segments,
                                   layout.shape.q_heads, layout.shape.ctas) +
                           below(5));
  return layout;
}

std::vector<uint8_t> Build(const Layout& layout) {
  std::vector<uint8_t> bytes(static_cast<size_t>(ScheduleBytes(layout.shape.capacity)), 0xcd);
  BuildSchedule(layout.shape, layout.rows.data(), layout.sequences, bytes.data());
  return bytes;
}

template <typename T>
std::vector<T> Part(const std::vector<uint8_t>& schedule, int64_t offset, int64_t count) {
  std::vector<T> part(static_cast<size_t>(count));
  if (count > 0) {
    std::memcpy(part.data(), schedule.data() + offset, static_cast<size_t>(count) * sizeof(T));
  }
  return part;
}

// The list of work by the shared functions alone, one entry at a time, as the device makes it.
std::vector<WorkItem> PlainWork(const Layout& layout, int32_t dynamic) {
  const ScheduleShape& shape = layout.shape;
  std::vector<SequenceSums> sums;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < layout.sequences; ++i) {
    sums.push_back(SumSequence(&layout.rows[size_t(i) * shape.capacity.segments], shape));
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return Precedes(SequenceCost(sums[a], shape.causal), a, SequenceCost(sums[b], shape.causal), b);
  });
  std::vector<WorkItem> tiles;
  for (const int32_t i : order) {
    const auto count = static_cast<int32_t>(sums[i].query_tiles);
    for (int32_t index = 0; index < count * shape.q_heads; ++index) {
      tiles.push_back(
          SequenceWork(i, &layout.rows[size_t(i) * shape.capacity.segments], shape, count, index));
    }
  }
  const auto total = static_cast<int32_t>(tiles.size());
  const int32_t split = SplitTiles(total, shape.ctas, dynamic);
  std::vector<WorkItem> work;
  for (int32_t i = 0; i < total + split; ++i) {
    const SplitEntry entry = FindSplit(i, total, split);
    work.push_back(HalfOf(tiles[entry.tile], entry.half));
  }
  return work;
}

bool Same(const WorkItem& a, const WorkItem& b) {
  return std::memcmp(&a, &b, sizeof(WorkItem)) == 0;
}

TEST(ScheduleBuilder, MakesWhatTheSharedFunctionsMakeOn1000Layouts) {
  std::mt19937 random(21);
  for (int trial = 0; trial < 1000; ++trial) {
    const Layout layout = RandomLayout(random);
    const ScheduleCapacity& capacity = layout.shape.capacity;
    const std::vector<uint8_t> schedule = Build(layout);
    const auto header = Part<ScheduleHeader>(schedule, 0, 1)[0];
    ASSERT_EQ(header.error, kScheduleOk) << "trial " << trial;
    const auto work = Part<WorkItem>(schedule, WorkOffset(capacity), capacity.work);
    const std::vector<WorkItem> plain = PlainWork(layout, header.dynamic);
    ASSERT_EQ(header.work, static_cast<int32_t>(plain.size())) << "trial " << trial;
    for (int32_t i = 0; i < capacity.work; ++i) {
      const WorkItem want = i < header.work ? plain[i] : WorkItem{-1, 0, 0, 0};
      ASSERT_TRUE(Same(work[i], want)) << "trial " << trial << " entry " << i;
    }
    const auto segments = Part<SegmentRecord>(schedule, SegmentsOffset(capacity),
                                              int64_t{capacity.sequences} * capacity.segments);
    for (int32_t i = 0; i < capacity.sequences * capacity.segments; ++i) {
      SegmentRecord want{};
      if (i < layout.sequences * capacity.segments) {
        want = MakeSegment(&layout.rows[size_t(i / capacity.segments) * capacity.segments],
                           capacity.segments, layout.shape.causal, i % capacity.segments);
      }
      ASSERT_EQ(std::memcmp(&segments[i], &want, sizeof(want)), 0) << "trial " << trial;
    }
  }
}

// Every query row of every head once, the longest sequences first.
TEST(ScheduleBuilder, CoversEveryRowOnceAndTakesTheLongestFirstOn1000Layouts) {
  std::mt19937 random(22);
  for (int trial = 0; trial < 1000; ++trial) {
    const Layout layout = RandomLayout(random);
    const ScheduleCapacity& capacity = layout.shape.capacity;
    const std::vector<uint8_t> schedule = Build(layout);
    const auto header = Part<ScheduleHeader>(schedule, 0, 1)[0];
    const auto work = Part<WorkItem>(schedule, WorkOffset(capacity), header.work);
    std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<char>> seen;
    for (int32_t i = 0; i < layout.sequences * capacity.segments; ++i) {
      for (int32_t h = 0; h < layout.shape.q_heads; ++h) {
        seen[{i / capacity.segments, i % capacity.segments, h}].assign(layout.rows[i].q_rows, 0);
      }
    }
    int32_t last_cost = INT32_MAX;
    for (const WorkItem& item : work) {
      std::vector<char>& rows = seen.at({item.sequence, item.segment, item.head_and_rows / 256});
      const int32_t count = item.head_and_rows % 256;
      if (count == 0) continue;  // the second half of a tile that has no such rows
      ASSERT_LE(item.row + count, static_cast<int32_t>(rows.size())) << "trial " << trial;
      for (int32_t r = 0; r < count; ++r) ++rows[item.row + r];
      const int32_t cost = SequenceCost(
          SumSequence(&layout.rows[size_t(item.sequence) * capacity.segments], layout.shape),
          layout.shape.causal);
      ASSERT_LE(cost, last_cost) << "trial " << trial;
      last_cost = cost;
    }
    for (const auto& [key, rows] : seen) {
      ASSERT_EQ(std::count(rows.begin(), rows.end(), 1), static_cast<int64_t>(rows.size()))
          << "trial " << trial << " sequence " << std::get<0>(key);
    }
  }
}

// A sequence's tiles, keys and rows follow from its own lengths: whatever is beside it, its entries
// (halves joined) and its records are the same but for its number and the place of its sums.
TEST(ScheduleBuilder, ASequencesEntriesDoNotDependOnItsCompany) {
  std::mt19937 random(23);
  const auto entries = [](const Layout& layout, int32_t sequence) {
    const std::vector<uint8_t> schedule = Build(layout);
    const auto header = Part<ScheduleHeader>(schedule, 0, 1)[0];
    std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> rows;
    for (const WorkItem& item :
         Part<WorkItem>(schedule, WorkOffset(layout.shape.capacity), header.work)) {
      if (item.sequence != sequence) continue;
      const int32_t tile = item.row / kQueryTile;
      rows[{item.segment, tile, item.head_and_rows / 256}] += item.head_and_rows % 256;
    }
    return rows;
  };
  for (int trial = 0; trial < 200; ++trial) {
    Layout batch = RandomLayout(random);
    if (batch.sequences == 0) continue;
    const auto at = static_cast<int32_t>(random() % batch.sequences);
    Layout alone = batch;
    const auto begin = batch.rows.begin() + at * batch.shape.capacity.segments;
    alone.rows.assign(begin, begin + batch.shape.capacity.segments);
    alone.sequences = 1;
    EXPECT_EQ(entries(batch, at), entries(alone, 0)) << "trial " << trial;
  }
}

TEST(ScheduleBuilder, ServesOneBatchAfterAnother) {
  std::mt19937 random(24);
  ScheduleBuilder builder;
  for (int trial = 0; trial < 50; ++trial) {
    const Layout layout = RandomLayout(random);
    const std::vector<uint8_t> whole = Build(layout);
    const ScheduleHeader header =
        builder.Measure(layout.shape, layout.rows.data(), layout.sequences);
    const int32_t segments = layout.sequences * layout.shape.capacity.segments;
    ScheduleHeader written{};
    std::vector<SequenceRecord> sequences(layout.sequences);
    std::vector<SegmentRecord> records(segments);
    std::vector<WorkItem> work(header.work);
    builder.Write({&written, sequences.data(), records.data(), work.data()});
    const auto equal = [&](const void* part, int64_t offset, size_t bytes) {
      return bytes == 0 || std::memcmp(part, whole.data() + offset, bytes) == 0;
    };
    EXPECT_TRUE(equal(&written, 0, sizeof(written)));
    EXPECT_TRUE(equal(sequences.data(), SequencesOffset(), sequences.size() * 16));
    EXPECT_TRUE(equal(records.data(), SegmentsOffset(layout.shape.capacity), records.size() * 32));
    EXPECT_TRUE(equal(work.data(), WorkOffset(layout.shape.capacity), work.size() * 16));
  }
}

}  // namespace
}  // namespace segue::kernels
