#include "kernels/attention_sm90.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/gpu_rig.h"

namespace segue::kernels {
namespace {

using attention::ElementType;

class AttentionSm90Gpu : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  const Stream stream_ = Stream::Cuda(nullptr);

  void RunAndCheck(const std::vector<SequenceLengths>& lengths, const BatchOptions& options) {
    Batch batch(lengths, options, 17);
    batch.Upload();
    ASSERT_TRUE(batch.Refresh(stream_).ok());
    const Status status = batch.Run(stream_);
    ASSERT_TRUE(status.ok()) << status.error().Message();
    EXPECT_EQ(batch.Check(), "");
  }
};

TEST_F(AttentionSm90Gpu, OneTile) { RunAndCheck({{{128, 176}}}, {}); }

TEST_F(AttentionSm90Gpu, SegmentsInPlace) {
  RunAndCheck({{{14, 14}, {200, 210}}, {{64, 64}, {130, 353}}}, {});
}

// 1,000 sequences, each cut into segments of its own.
TEST_F(AttentionSm90Gpu, RandomLayouts) {
  const int32_t queries[] = {0, 0, 1, 3, 17, 64, 65};
  const int32_t keys[] = {0, 1, 5, 8, 9, 40, 63, 64, 100, 177};
  std::mt19937 random(23);
  for (const bool causal : {false, true}) {
    std::vector<SequenceLengths> sequences(500);
    for (SequenceLengths& sequence : sequences) {
      sequence.resize(1 + random() % 5);
      for (SegmentLength& segment : sequence) {
        segment = {queries[random() % std::size(queries)], keys[random() % std::size(keys)]};
      }
    }
    RunAndCheck(sequences, {.q_heads = 1, .kv_heads = 1, .causal = causal});
  }
}

TEST_F(AttentionSm90Gpu, LengthsAroundEveryTileEdge) {
  const int32_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 175, 176, 177, 353};
  for (const bool causal : {false, true}) {
    std::vector<SequenceLengths> sequences;
    for (const int32_t q : {0, 1, 65, 128, 129}) {
      for (const int32_t kv : lengths) sequences.push_back({{q, kv}});
    }
    RunAndCheck(sequences, {.q_heads = 1, .kv_heads = 1, .causal = causal});
  }
}

TEST_F(AttentionSm90Gpu, CausalGroupedHeads) {
  RunAndCheck({{{300, 300}}, {{129, 40}}, {{5, 200}, {100, 61}}},
              {.q_heads = 6, .kv_heads = 2, .causal = true});
}

TEST_F(AttentionSm90Gpu, Float16) {
  for (const bool causal : {false, true}) {
    RunAndCheck({{{14, 14}, {200, 210}}},
                {.causal = causal, .element_type = ElementType::kFloat16, .poison = 0x7fff});
  }
}

TEST_F(AttentionSm90Gpu, SegmentsWithoutQueriesOrKeys) {
  RunAndCheck({{{70, 0}, {0, 333}, {9, 200}}, {{0, 0}, {33, 0}, {0, 0}}, {{0, 5}, {0, 0}, {0, 9}}},
              {});
}

TEST_F(AttentionSm90Gpu, RowsOfNobodyDoNotReachAnOutput) {
  // Zero, NaN, infinity, the largest number, a denormal.
  const uint16_t patterns[] = {0x0000, 0x7fff, 0x7f80, 0x7f7f, 0x0001};
  for (const bool causal : {false, true}) {
    Batch batch({{{14, 14}, {150, 187}}, {{3, 9}, {65, 129}}}, {.causal = causal}, 5);
    std::vector<std::vector<uint16_t>> outputs;
    for (const uint16_t pattern : patterns) {
      batch.Poison(pattern);
      batch.Upload();
      ASSERT_TRUE(batch.Refresh(stream_).ok());
      ASSERT_TRUE(batch.Run(stream_).ok());
      ASSERT_EQ(batch.Check(), "");
      outputs.push_back(batch.OutputOf(0));
      EXPECT_EQ(outputs.back(), outputs.front());
    }
  }
}

TEST_F(AttentionSm90Gpu, BytesDoNotDependOnTheBatch) {
  const SequenceLengths lengths = {{14, 14}, {300, 290}};
  for (const bool causal : {false, true}) {
    Batch alone({lengths}, {.causal = causal}, 3);
    alone.Upload();
    ASSERT_TRUE(alone.Refresh(stream_).ok());
    ASSERT_TRUE(alone.Run(stream_).ok());
    ASSERT_EQ(alone.Check(), "");
    for (int32_t at = 0; at < 4; ++at) {
      std::vector<SequenceLengths> sequences = {{{1, 700}, {90, 3}}, {{64, 64}, {0, 2}}, {{5, 5}}};
      sequences.insert(sequences.begin() + at, lengths);
      Batch batch(sequences, {.causal = causal}, 100 + static_cast<uint32_t>(at));
      batch.CopySequence(alone, 0, at);
      batch.Upload();
      ASSERT_TRUE(batch.Refresh(stream_).ok());
      ASSERT_TRUE(batch.Run(stream_).ok());
      ASSERT_EQ(batch.Check(), "");
      EXPECT_EQ(batch.OutputOf(at), alone.OutputOf(0)) << "position " << at;
      EXPECT_EQ(batch.LseOf(at), alone.LseOf(0)) << "position " << at;
    }
  }
}

TEST_F(AttentionSm90Gpu, ScheduleOfTheDeviceIsThatOfTheHost) {
  std::mt19937 random(11);
  const int32_t choices[] = {0, 1, 8, 9, 64, 129, 400};
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<SequenceLengths> sequences(random() % 9);
    for (SequenceLengths& sequence : sequences) {
      for (int s = 0; s < 3; ++s) {
        sequence.push_back({choices[random() % 7], choices[random() % 7]});
      }
    }
    Batch batch(sequences, {.causal = trial % 2 == 1, .sequences = 10}, 1);
    if (trial % 5 == 4 && !sequences.empty()) batch.WriteSegment(0, {0, -1, 5, 0, 5});
    batch.Upload();
    ASSERT_TRUE(batch.Refresh(stream_).ok());
    std::vector<uint8_t> host(static_cast<size_t>(ScheduleBytes(batch.shape().capacity)));
    BuildSchedule(batch.shape(), batch.rows().data(), batch.sequences(), host.data());
    EXPECT_EQ(batch.ReadSchedule(), host) << "trial " << trial;
  }
}

TEST_F(AttentionSm90Gpu, LengthsPastTheTensorsWriteNothing) {
  Batch batch({{{64, 64}}, {{100, 100}}}, {}, 2);
  batch.WriteSegment(1, {0, 0, 1 << 20, 0, 100});
  batch.Upload();
  ASSERT_TRUE(batch.Refresh(stream_).ok());
  ASSERT_TRUE(batch.Run(stream_).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  batch.Fetch();
  EXPECT_TRUE(batch.OutputsUntouched());
  ScheduleHeader header;
  const std::vector<uint8_t> schedule = batch.ReadSchedule();
  std::memcpy(&header, schedule.data(), sizeof(header));
  EXPECT_EQ(header.error, kScheduleRows);
  EXPECT_EQ(header.error_sequence, 1);
}

}  // namespace
}  // namespace segue::kernels
