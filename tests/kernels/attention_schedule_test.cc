#include "kernels/attention_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/attention_sm90.h"

namespace segue::kernels {
namespace {

ScheduleShape MakeShape(int32_t sequences, int32_t segments, int32_t heads, bool causal) {
  ScheduleShape shape{};
  shape.capacity = {sequences, segments, 1 << 16};
  shape.q_heads = heads;
  shape.causal = causal ? 1 : 0;
  shape.ctas = 132;
  shape.sources = 2;
  shape.source_rows[0] = {100000, 100000};
  shape.source_rows[1] = {100000, 100000};
  shape.lse_rows = INT32_MAX;
  return shape;
}

struct Schedule {
  Schedule(const ScheduleShape& shape, const std::vector<SegmentRows>& rows, int32_t sequences)
      : words(ScheduleBytes(shape.capacity) / 16) {
    BuildSchedule(shape, rows.data(), sequences, words.data());
    const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
    std::memcpy(&header, bytes, sizeof(header));
    records = reinterpret_cast<const SequenceRecord*>(bytes + SequencesOffset());
    segments = reinterpret_cast<const SegmentRecord*>(bytes + SegmentsOffset(shape.capacity));
    work = reinterpret_cast<const WorkItem*>(bytes + WorkOffset(shape.capacity));
  }

  struct alignas(16) Word {
    uint8_t bytes[16];
  };
  std::vector<Word> words;
  ScheduleHeader header{};
  const SequenceRecord* records;
  const SegmentRecord* segments;
  const WorkItem* work;
};

std::vector<SegmentRows> RandomRows(std::mt19937& random, int32_t sequences, int32_t segments) {
  const int32_t choices[] = {0, 0, 1, 7, 8, 9, 64, 128, 129, 333, 1000};
  std::vector<SegmentRows> rows;
  for (int32_t i = 0; i < sequences * segments; ++i) {
    rows.push_back({static_cast<int32_t>(random() % 2), static_cast<int32_t>(random() % 100),
                    choices[random() % std::size(choices)], static_cast<int32_t>(random() % 100),
                    choices[random() % std::size(choices)]});
  }
  return rows;
}

TEST(AttentionSchedule, CoversEveryRowOfEveryHeadOnce) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t sequences = static_cast<int32_t>(random() % 20);
    const int32_t segments = 1 + static_cast<int32_t>(random() % 4);
    const int32_t heads = 1 + static_cast<int32_t>(random() % 5);
    const ScheduleShape shape = MakeShape(24, segments, heads, trial % 2 == 1);
    std::vector<SegmentRows> rows = RandomRows(random, 24, segments);
    if (trial % 3 == 0) std::fill(rows.begin(), rows.end(), SegmentRows{0, 0, 640, 0, 640});
    const Schedule schedule(shape, rows, sequences);
    ASSERT_EQ(schedule.header.error, kScheduleOk);

    std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<int>> seen;
    int64_t q_rows = 0;
    int64_t q_segments = 0;
    for (int32_t i = 0; i < sequences * segments; ++i) {
      q_rows += rows[i].q_rows;
      q_segments += rows[i].q_rows > 0;
      for (int32_t h = 0; h < heads; ++h) {
        seen[{i / segments, i % segments, h}].assign(rows[i].q_rows, 0);
      }
    }
    EXPECT_LE(schedule.header.work, MaxWork(q_rows, q_segments, heads, shape.ctas));
    for (int32_t i = 0; i < schedule.header.work; ++i) {
      const WorkItem& item = schedule.work[i];
      const int32_t count = item.head_and_rows % 256;
      ASSERT_LE(count, kQueryTile);
      std::vector<int>& counts = seen.at({item.sequence, item.segment, item.head_and_rows / 256});
      ASSERT_LE(item.row + count, static_cast<int32_t>(counts.size()));
      for (int32_t r = 0; r < count; ++r) ++counts[item.row + r];
    }
    for (const auto& [key, counts] : seen) {
      for (const int times : counts) ASSERT_EQ(times, 1);
    }
    for (int32_t i = schedule.header.work; i < shape.capacity.work; ++i) {
      ASSERT_EQ(schedule.work[i].sequence, -1);
    }
  }
}

TEST(AttentionSchedule, SegmentsBeginAtWholeGroupsAndDoNotOverlap) {
  std::mt19937 random(8);
  for (const bool causal : {false, true}) {
    const ScheduleShape shape = MakeShape(8, 5, 1, causal);
    const std::vector<SegmentRows> rows = RandomRows(random, 8, 5);
    const Schedule schedule(shape, rows, 8);
    for (int32_t i = 0; i < 8; ++i) {
      const SegmentRecord* segments = schedule.segments + i * 5;
      int32_t q_position = 0;
      int32_t kv_position = 0;
      std::vector<SegmentRecord> keys;
      for (int32_t s = 0; s < 5; ++s) {
        EXPECT_EQ(segments[s].q_position, q_position);
        EXPECT_EQ(segments[s].kv_position, kv_position);
        q_position += segments[s].q_rows;
        kv_position += segments[s].kv_rows;
        if (segments[s].kv_rows > 0) keys.push_back(segments[s]);
      }
      std::sort(keys.begin(), keys.end(), [](const SegmentRecord& a, const SegmentRecord& b) {
        return a.key_begin < b.key_begin;
      });
      int32_t end = 0;
      for (size_t k = 0; k < keys.size(); ++k) {
        EXPECT_EQ(keys[k].key_begin, DivideUp(end, kKeyGroup) * kKeyGroup);
        end = keys[k].key_begin + keys[k].kv_rows;
        if (k == 0) continue;
        // In order when causal, else the longest first.
        if (causal) {
          EXPECT_GT(keys[k].kv_position, keys[k - 1].kv_position);
        } else {
          EXPECT_LE(keys[k].kv_rows, keys[k - 1].kv_rows);
        }
      }
      EXPECT_EQ(schedule.records[i].key_extent, end);
      EXPECT_EQ(schedule.records[i].q_rows, q_position);
      EXPECT_EQ(schedule.records[i].kv_rows, kv_position);
    }
  }
}

TEST(AttentionSchedule, ASequencesRecordsDoNotDependOnItsCompany) {
  std::mt19937 random(9);
  const std::vector<SegmentRows> alone = RandomRows(random, 1, 3);
  const Schedule single(MakeShape(1, 3, 2, false), alone, 1);
  for (int32_t at = 0; at < 6; ++at) {
    std::vector<SegmentRows> rows = RandomRows(random, 6, 3);
    std::copy(alone.begin(), alone.end(), rows.begin() + at * 3);
    const Schedule batch(MakeShape(6, 3, 2, false), rows, 6);
    EXPECT_EQ(std::memcmp(batch.segments + at * 3, single.segments, 3 * sizeof(SegmentRecord)), 0);
    EXPECT_EQ(batch.records[at].key_extent, single.records[0].key_extent);
  }
}

TEST(AttentionSchedule, TakesTheLongestFirstUnlessAllAreEqual) {
  const ScheduleShape shape = MakeShape(3, 1, 1, false);
  const Schedule ragged(shape, {{0, 0, 128, 0, 100}, {0, 0, 128, 0, 5000}, {0, 0, 128, 0, 900}}, 3);
  EXPECT_EQ(ragged.header.dynamic, 1);
  EXPECT_EQ(ragged.work[0].sequence, 1);
  EXPECT_EQ(ragged.work[1].sequence, 2);
  EXPECT_EQ(ragged.work[2].sequence, 0);
  const Schedule equal(shape, {{0, 0, 128, 0, 900}, {0, 0, 64, 0, 900}, {0, 0, 128, 0, 900}}, 3);
  EXPECT_EQ(equal.header.dynamic, 0);
  EXPECT_EQ(equal.work[0].sequence, 0);
  // Rows that see no key, and a sequence without rows, are no reason to go by a counter.
  const Schedule padded(shape, {{0, 0, 128, 0, 900}, {0, 128, 70, 0, 0}, {0, 0, 0, 0, 50}}, 3);
  EXPECT_EQ(padded.header.dynamic, 0);
}

TEST(AttentionSchedule, SplitsALastWaveThatLeavesHalfOfTheCtasIdle) {
  const ScheduleShape shape = MakeShape(1, 1, 24, false);
  const Schedule schedule(shape, {{0, 0, 5120, 0, 5120}}, 1);  // 960 tiles = 7 x 132 + 36
  EXPECT_EQ(schedule.header.work, 7 * 132 + 72);
  EXPECT_EQ(schedule.work[7 * 132 - 1].head_and_rows % 256, 128);
  EXPECT_EQ(schedule.work[7 * 132].head_and_rows % 256, 64);
}

TEST(AttentionSchedule, ReportsMistakesInTheLengthsAndLeavesNoWork) {
  ScheduleShape shape = MakeShape(2, 1, 1, false);
  const SegmentRows good{0, 0, 64, 0, 64};
  const auto error = [&](const SegmentRows& bad, int32_t sequences) {
    const Schedule schedule(shape, {good, bad}, sequences);
    if (schedule.header.error != kScheduleOk) {
      EXPECT_EQ(schedule.header.work, 0);
      EXPECT_EQ(schedule.work[0].sequence, -1);
    }
    return schedule.header.error;
  };
  EXPECT_EQ(error(good, 2), kScheduleOk);
  EXPECT_EQ(error(good, 3), kScheduleSequences);
  EXPECT_EQ(error(good, -1), kScheduleSequences);
  EXPECT_EQ(error({2, 0, 64, 0, 64}, 2), kScheduleSource);
  EXPECT_EQ(error({-1, 0, 64, 0, 64}, 2), kScheduleSource);
  EXPECT_EQ(error({0, 0, -64, 0, 64}, 2), kScheduleRows);
  EXPECT_EQ(error({0, 0, 64, 0, -1}, 2), kScheduleRows);
  EXPECT_EQ(error({0, -1, 64, 0, 64}, 2), kScheduleRows);
  EXPECT_EQ(error({0, 99990, 64, 0, 64}, 2), kScheduleRows);
  EXPECT_EQ(error({0, 0, 64, 0, INT32_MAX}, 2), kScheduleRows);
  shape.lse_rows = 127;
  EXPECT_EQ(error(good, 2), kScheduleLse);
  shape.lse_rows = 128;
  EXPECT_EQ(error(good, 2), kScheduleOk);
  shape.capacity.work = 1;
  EXPECT_EQ(error(good, 2), kScheduleWork);
}

TEST(AttentionSchedule, KeyLimitSkipsTheGapsBetweenSegments) {
  const SegmentRows rows[] = {{0, 0, 0, 0, 13}, {0, 0, 0, 0, 0}, {1, 0, 0, 0, 20}};
  const auto limit = [&](int32_t count) {
    int32_t result = 0;
    for (int32_t s = 0; s < 3; ++s) result = KeyLimit(MakeSegment(rows, 3, 1, s), count, result);
    return result;
  };
  EXPECT_EQ(limit(-5), 0);
  EXPECT_EQ(limit(0), 0);
  EXPECT_EQ(limit(13), 13);
  EXPECT_EQ(limit(14), 17);  // the second segment with keys begins at 16
  EXPECT_EQ(limit(33), 36);
}

TEST(AttentionSm90, SaysWhyItRejects) {
  alignas(16) static uint16_t memory[8];
  AttentionSm90Params params;
  params.source_count = 1;
  params.sources[0] = {memory, memory, memory, memory, 256, 256, 256, 256, 1, 1};
  params.schedule = memory;
  int32_t counters[2] = {0, 0};
  params.counters = counters;
  params.capacity = {1, 1, 1};
  params.q_heads = 2;
  params.kv_heads = 2;
  params.head_dim = 128;
  params.ctas = 1;
  params.softmax_scale = 1.0f;
  EXPECT_EQ(AttentionSm90Rejects(params), nullptr);
  const auto reason = [&](auto change) {
    AttentionSm90Params changed = params;
    change(changed);
    const char* text = AttentionSm90Rejects(changed);
    return std::string(text == nullptr ? "" : text);
  };
  using P = AttentionSm90Params;
  EXPECT_NE(reason([](P& p) { p.head_dim = 64; }).find("head_dim"), std::string::npos);
  EXPECT_NE(reason([](P& p) { p.element_type = attention::ElementType::kFloat32; }).find("float32"),
            std::string::npos);
  EXPECT_NE(reason([](P& p) { p.kv_heads = 3; }).find("heads"), std::string::npos);
  EXPECT_NE(reason([](P& p) { p.softmax_scale = 0.0f; }).find("scale"), std::string::npos);
  EXPECT_NE(reason([](P& p) { p.sources[0].q = memory + 4; }).find("pointer"), std::string::npos);
  EXPECT_NE(reason([](P& p) { p.sources[0].v_row_stride = 260; }).find("stride"),
            std::string::npos);
  EXPECT_NE(reason([](P& p) { p.sources[0].o_row_stride = 120; }).find("stride"),
            std::string::npos);
  EXPECT_NE(reason([](P& p) { p.sources[0].k_head_stride = 132; }).find("head stride"),
            std::string::npos);
  // Heads far apart, rows close together: a [heads, rows, 128] tensor.
  EXPECT_EQ(reason([](P& p) {
              p.sources[0].q_row_stride = 128;
              p.sources[0].q_head_stride = 1024;
            }),
            "");
  EXPECT_EQ(reason([](P& p) { p.sources[0] = {}; }), "");
}

}  // namespace
}  // namespace segue::kernels
