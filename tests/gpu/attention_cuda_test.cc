// The plain attention kernel, for head sizes on both sides of every size that it has code for.
#include "kernels/attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "gpu/attention_case.h"

namespace segue::kernels {
namespace {

using attention::ElementType;

class AttentionCudaGpu : public AttentionCase, public testing::WithParamInterface<int32_t> {
 protected:
  static BatchOptions OptionsOf(bool causal, ElementType type = ElementType::kBFloat16) {
    return {.causal = causal,
            .element_type = type,
            .backend = BatchOptions::Backend::kCuda,
            .head_dim = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(HeadDim, AttentionCudaGpu, testing::Values(8, 32, 40, 64, 128, 136, 256),
                         testing::PrintToStringParamName());

TEST_P(AttentionCudaGpu, OneTile) {
  RunAndCheck({{{64, 64}}}, OptionsOf(false));
  RunAndCheck({{{64, 64}}}, OptionsOf(true));
}

TEST_P(AttentionCudaGpu, SegmentsInPlace) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const bool causal : {false, true}) {
      RunAndCheck({{{14, 14}, {200, 210}}, {{64, 64}, {130, 353}}}, OptionsOf(causal, type));
    }
  }
}

TEST_P(AttentionCudaGpu, GroupedHeads) {
  for (const bool causal : {false, true}) {
    BatchOptions options = OptionsOf(causal);
    options.q_heads = 6;
    options.kv_heads = 2;
    RunAndCheck({{{98, 98}}, {{129, 40}}, {{5, 200}, {100, 61}}}, options);
  }
}

TEST_P(AttentionCudaGpu, LengthsAroundEveryTileEdge) {
  const int32_t lengths[] = {0, 1, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 193};
  for (const bool causal : {false, true}) {
    std::vector<SequenceLengths> sequences;
    for (const int32_t q : {0, 1, 15, 16, 17, 63, 64, 65, 128, 129}) {
      for (const int32_t kv : lengths) sequences.push_back({{q, kv}});
    }
    BatchOptions options = OptionsOf(causal);
    options.q_heads = options.kv_heads = 1;
    RunAndCheck(sequences, options);
  }
}

// Each cut into segments of its own, some without queries or keys.
TEST_P(AttentionCudaGpu, RandomLayouts) {
  const int32_t queries[] = {0, 0, 1, 3, 17, 64, 65};
  const int32_t keys[] = {0, 1, 5, 8, 9, 40, 63, 64, 100};
  std::mt19937 random(23);
  for (const bool causal : {false, true}) {
    std::vector<SequenceLengths> sequences(300);
    for (SequenceLengths& sequence : sequences) {
      sequence.resize(1 + random() % 5);
      for (SegmentLength& segment : sequence) {
        segment = {queries[random() % std::size(queries)], keys[random() % std::size(keys)]};
      }
    }
    BatchOptions options = OptionsOf(causal);
    options.q_heads = options.kv_heads = 1;
    RunAndCheck(sequences, options);
  }
}

TEST_P(AttentionCudaGpu, SegmentsWithoutQueriesOrKeys) {
  for (const bool causal : {false, true}) {
    RunAndCheck(
        {{{70, 0}, {0, 133}, {9, 100}}, {{0, 0}, {33, 0}, {0, 0}}, {{0, 5}, {0, 0}, {0, 9}}},
        OptionsOf(causal));
  }
}

// Memory ends where the tensors do: nothing past them is touched.
TEST_P(AttentionCudaGpu, NothingPastTheTensorsIsRead) {
  for (const bool causal : {false, true}) {
    BatchOptions options = OptionsOf(causal);
    options.gap = 0;
    options.place = GpuMemory::Place::kBeforeAGuard;
    RunAndCheck({{{14, 14}, {100, 87}}, {{3, 9}, {65, 129}}}, options);
  }
}

TEST_P(AttentionCudaGpu, RowsOfNobodyDoNotReachAnOutput) {
  // Zero, NaN, infinity, the largest number, 65504 of float16, a denormal.
  const uint16_t patterns[] = {0x0000, 0x7fff, 0x7f80, 0x7f7f, 0x7bff, 0x0001};
  for (const bool causal : {false, true}) {
    Batch batch({{{14, 14}, {150, 187}}, {{3, 9}, {65, 129}}}, OptionsOf(causal), 5);
    std::vector<uint32_t> expected;
    for (const uint16_t pattern : patterns) {
      batch.Poison(pattern);
      ASSERT_EQ(LaunchAndCheck(batch), "");
      if (expected.empty()) expected = BitsOf(batch);
      EXPECT_TRUE(BitsOf(batch) == expected) << "pattern " << pattern << ", causal " << causal;
    }
    EXPECT_TRUE(batch.InputsUntouched());
  }
}

// Logits of about -120: a key that is not there but counts as 0 would take all weight.
TEST_P(AttentionCudaGpu, NegativeLogitsLeakNothing) {
  std::vector<SequenceLengths> lengths;
  for (int32_t length = 1; length <= 130; ++length) {
    lengths.push_back({{std::min(length, 3), length / 3}, {0, length - length / 3}});
  }
  const float key = -120.0f * std::sqrt(static_cast<float>(GetParam()));
  for (const bool causal : {false, true}) {
    BatchOptions options = OptionsOf(causal);
    options.q_heads = options.kv_heads = 1;
    Batch batch(lengths, options, 61);
    batch.Fill(Batch::Part::kQ,
               [](const Batch::Element& e) { return e.column == 0 ? 1.0f : 0.0f; });
    batch.Fill(Batch::Part::kK,
               [key](const Batch::Element& e) { return e.column == 0 ? key : 0.0f; });
    EXPECT_EQ(LaunchAndCheck(batch), "") << "causal " << causal;
  }
}

TEST_P(AttentionCudaGpu, LargeQueriesAndLargeValues) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    Batch batch({{{65, 300}}, {{14, 14}, {130, 153}}}, OptionsOf(true, type), 67);
    batch.Fill(Batch::Part::kQ, [](const Batch::Element& e) { return 1000.0f * e.value; });
    EXPECT_EQ(LaunchAndCheck(batch), "") << "queries";
    batch.Fill(Batch::Part::kQ, [](const Batch::Element&) { return 0.0f; });
    batch.Fill(Batch::Part::kV,
               [](const Batch::Element& e) { return e.column % 2 == 0 ? 65504.0f : -65504.0f; });
    EXPECT_EQ(LaunchAndCheck(batch), "") << "values";
  }
}

TEST_P(AttentionCudaGpu, BytesDoNotDependOnTheBatch) {
  const SequenceLengths lengths = {{14, 14}, {200, 190}};
  for (const bool causal : {false, true}) {
    Batch alone({lengths}, OptionsOf(causal), 3);
    ASSERT_EQ(LaunchAndCheck(alone), "");
    for (int32_t at = 0; at < 4; ++at) {
      std::vector<SequenceLengths> sequences = {{{1, 700}, {90, 3}}, {{64, 64}, {0, 2}}, {{5, 5}}};
      sequences.insert(sequences.begin() + at, lengths);
      Batch batch(sequences, OptionsOf(causal), 100 + static_cast<uint32_t>(at));
      batch.CopySequence(alone, 0, at);
      ASSERT_EQ(LaunchAndCheck(batch), "");
      EXPECT_EQ(batch.OutputOf(at), alone.OutputOf(0)) << "position " << at;
      EXPECT_EQ(batch.LseOf(at), alone.LseOf(0)) << "position " << at;
    }
  }
}

TEST_P(AttentionCudaGpu, AGraphReplaysOtherLengthsAsEagerCallsDo) {
  const std::vector<SequenceLengths> first = {
      {{64, 64}, {256, 256}}, {{64, 64}, {256, 256}}, {{64, 64}, {256, 256}}, {}};
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  std::mt19937 random(31);
  for (const bool causal : {false, true}) {
    BatchOptions options = OptionsOf(causal);
    options.rows_apart = 7;
    Batch batch(first, options, 1);
    Captured graph(stream, [&] {
      EXPECT_TRUE(batch.Refresh(Stream::Cuda(stream)).ok());
      EXPECT_TRUE(batch.Run(Stream::Cuda(stream)).ok());
    });
    for (uint32_t set = 0; set < 10; ++set) {
      std::vector<SequenceLengths> lengths(random() % 5);
      for (SequenceLengths& sequence : lengths) {
        const auto text = static_cast<int32_t>(random() % 65);
        const auto image = static_cast<int32_t>(random() % 180);
        sequence = {{text, text}, {image, static_cast<int32_t>(random() % 180)}};
      }
      batch.SetLengths(lengths, 40 + set);
      batch.Upload();
      graph.Replay();
      EXPECT_EQ(batch.Check(), "") << "set " << set << ", causal " << causal;
      Batch eager(first, options, 2);
      eager.SetLengths(lengths, 40 + set);
      ASSERT_EQ(Launch(eager), "");
      eager.Fetch();
      EXPECT_TRUE(BitsOf(batch) == BitsOf(eager)) << "set " << set << ", causal " << causal;
    }
  }
  cudaStreamDestroy(stream);
}

TEST_P(AttentionCudaGpu, LengthsPastTheTensorsWriteNothing) {
  Batch batch({{{64, 64}}, {{100, 100}}}, OptionsOf(false), 2);
  batch.WriteSegment(1, {0, 0, 1 << 20, 0, 100});
  ASSERT_EQ(Launch(batch), "");
  batch.Fetch();
  EXPECT_TRUE(batch.OutputsUntouched());
  ScheduleHeader header;
  const std::vector<uint8_t> schedule = batch.ReadSchedule();
  std::memcpy(&header, schedule.data(), sizeof(header));
  EXPECT_EQ(header.error, kScheduleRows);
  EXPECT_EQ(header.error_sequence, 1);
}

// Both kernels round weights and outputs to 8 bits, each in its own order of sums: outputs of
// values up to 4 differ by at most two such roundings each.
TEST_F(AttentionCase, TheTwoKernelsOfHeadDim128Agree) {
  const std::vector<SequenceLengths> lengths = {{{14, 14}, {200, 390}}, {{64, 64}, {130, 353}}};
  for (const bool causal : {false, true}) {
    BatchOptions options{.q_heads = 4, .kv_heads = 2, .causal = causal};
    Batch sm90(lengths, options, 7);
    options.backend = BatchOptions::Backend::kCuda;
    Batch plain(lengths, options, 7);
    ASSERT_EQ(LaunchAndCheck(sm90), "");
    ASSERT_EQ(LaunchAndCheck(plain), "");
    for (int32_t i = 0; i < 2; ++i) {
      const std::vector<uint16_t> a = sm90.OutputOf(i);
      const std::vector<uint16_t> b = plain.OutputOf(i);
      double worst = 0.0;
      for (size_t j = 0; j < a.size(); ++j) {
        worst = std::max(worst, std::abs(double{BF16ToFloat(a[j])} - BF16ToFloat(b[j])));
      }
      EXPECT_LE(worst, 2 * 4 * 0x1p-7) << "sequence " << i << ", causal " << causal;
      const std::vector<float> lse = plain.LseOf(i);
      for (size_t j = 0; j < lse.size(); ++j) ASSERT_NEAR(sm90.LseOf(i)[j], lse[j], 1e-4);
    }
  }
}

}  // namespace
}  // namespace segue::kernels
