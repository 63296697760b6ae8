// Public reports about packed and variable lengths, each as a case of our kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gpu/attention_case.h"
#include "gpu/repeated_runs.h"
#include "segue/attention_plan.h"

namespace segue::kernels {
namespace {

using attention::ElementType;

class AttentionBugsGpu : public AttentionCase {};

// One segment each.
std::vector<SequenceLengths> Sequences(const std::vector<int32_t>& q,
                                       const std::vector<int32_t>& kv) {
  std::vector<SequenceLengths> sequences;
  for (size_t i = 0; i < q.size(); ++i) sequences.push_back({{q[i], kv[i]}});
  return sequences;
}
std::vector<int32_t> Differences(const std::vector<int32_t>& bounds) {
  std::vector<int32_t> lengths;
  for (size_t i = 1; i < bounds.size(); ++i) lengths.push_back(bounds[i] - bounds[i - 1]);
  return lengths;
}

// B017: padding, a sequence of its own, is longer than what it pads.
TEST_F(AttentionBugsGpu, PaddingLongerThanWhatItPads) {
  const std::vector<int32_t> lengths = {3, 61, 1, 127, 64, 64};
  for (const bool causal : {false, true}) {
    RunAndCheck(Sequences(lengths, lengths), {.causal = causal, .gap = 0});
  }
}

// B018: sequences without queries among sequences of one, grouped heads.
TEST_F(AttentionBugsGpu, NoQueriesWithGroupedHeads) {
  for (const bool causal : {true, false}) {
    RunAndCheck(Sequences(Differences({0, 1, 1, 2}), Differences({0, 3, 3, 8})),
                {.q_heads = 9, .kv_heads = 3, .causal = causal, .gap = 0});
    RunAndCheck(Sequences(Differences({0, 0, 0, 0, 1}), Differences({0, 0, 0, 0, 1})),
                {.q_heads = 21, .kv_heads = 7, .causal = causal, .gap = 0});
  }
}

// B019: empty sequences among long ones, then with queries and keys exchanged: queries without
// keys.
TEST_F(AttentionBugsGpu, NoQueriesOrNoKeysAmongLongSequences) {
  const std::vector<int32_t> q = Differences({0, 0, 1208, 2048, 2048});
  const std::vector<int32_t> kv = Differences({0, 2538, 4280, 5120, 8192});
  for (const bool causal : {false, true}) {
    const BatchOptions options{
        .q_heads = 4, .kv_heads = 1, .causal = causal, .gap = 0, .rows_apart = 97};
    RunAndCheck(Sequences(q, kv), options);
    RunAndCheck(Sequences(kv, q), options);
  }
}

// B020: nothing at all, keys alone, a long one.
TEST_F(AttentionBugsGpu, UnbalancedLengths) {
  for (const bool causal : {false, true}) {
    RunAndCheck(Sequences({0, 0, 1023}, {0, 1, 2045}),
                {.causal = causal, .gap = 0, .rows_apart = 31});
  }
}

// B021: lengths, their count, the schedule, every tensor and the log-sum-exp end where nothing is
// mapped any more.
TEST_F(AttentionBugsGpu, MetadataEndsWhereItsMemoryDoes) {
  const GpuMemory probe(4, GpuMemory::Place::kBeforeAGuard);
  if (probe.data() == nullptr) GTEST_SKIP() << "the driver maps no memory page by page";
  for (const int32_t count : {1, 2, 3, 7, 31, 33}) {
    std::vector<SequenceLengths> sequences;
    for (int32_t i = 0; i < count; ++i) {
      sequences.push_back({{i % 4, i % 3}, {(37 * i + 5) % 70, (53 * i + 9) % 190}});
    }
    for (const bool causal : {false, true}) {
      Batch batch(sequences, {.causal = causal, .gap = 0, .place = GpuMemory::Place::kBeforeAGuard},
                  43);
      batch.Upload();
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_TRUE(batch.Refresh(Stream::Cuda(nullptr)).ok());
      ASSERT_TRUE(batch.Run(Stream::Cuda(nullptr)).ok());
      ASSERT_EQ(batch.Check(), "") << count << " sequences";
    }
  }
}

// B022: tiles at the end of a request write no row of the next one, nor past the last.
TEST_F(AttentionBugsGpu, RequestsSideBySide) {
  const std::vector<int32_t> lengths = Differences({0, 1274, 2568, 3915, 5194, 6498, 7839, 8192});
  for (const int32_t gap : {0, 5}) {
    RunAndCheck(Sequences(lengths, lengths), {.rows = 8300, .gap = gap, .rows_apart = 151});
  }
}

// B023 and B046: every length around a tile's edges, whole and in two segments.
TEST_F(AttentionBugsGpu, LengthsThatAreNoMultipleOfATile) {
  const int32_t lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 192, 255, 257};
  std::vector<SequenceLengths> whole;
  std::vector<SequenceLengths> halved;
  for (const int32_t q : lengths) {
    for (const int32_t kv : lengths) {
      whole.push_back({{q, kv}});
      halved.push_back({{q / 3, kv / 2}, {q - q / 3, kv - kv / 2}});
    }
  }
  for (const bool causal : {false, true}) {
    const BatchOptions options{.q_heads = 1, .kv_heads = 1, .causal = causal, .rows_apart = 5};
    RunAndCheck(whole, options);
    RunAndCheck(halved, options);
    RunAndCheck(Sequences({4095, 4096, 4097, 1, 4096, 129, 4097, 17},
                          {4097, 4096, 4095, 4096, 1, 4095, 192, 4097}),
                {.q_heads = 1, .kv_heads = 1, .causal = causal, .rows_apart = 307});
  }
}

// B025: as many sequences as the kernel takes, the special ones where limits are; one more is
// refused and the limit named. (The CPU takes 65536: tests/attention.)
TEST_F(AttentionBugsGpu, AsManySequencesAsThereMayBe) {
  std::vector<SequenceLengths> sequences(kMaxSequences, {{1, 1}});
  sequences[0] = {{129, 65}};
  sequences[1023] = {{1, 300}};
  sequences[kMaxSequences - 2] = {{0, 7}};
  sequences[kMaxSequences - 1] = {{200, 177}};
  for (const bool causal : {false, true}) {
    RunAndCheck(sequences, {.q_heads = 2, .kv_heads = 1, .causal = causal, .gap = 0});
  }

  ScheduleShape shape{};
  shape.capacity = {kMaxSequences + 1, 1, 1};
  shape.q_heads = shape.ctas = 1;
  const Status refused = RefreshSchedule(shape, nullptr, nullptr, nullptr, Stream::Cuda(nullptr));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().Message().find("2048"), std::string::npos) << refused.error().Message();

  attention::PlanSettings settings;
  settings.options = {.q_heads = 2, .kv_heads = 1, .head_dim = 128, .softmax_scale = 0.1f};
  settings.options.element_type = ElementType::kBFloat16;
  settings.place = attention::Place::kCuda;
  settings.max_sequences = kMaxSequences + 1;
  settings.max_segments = 1;
  settings.tensors = {{4000, 4000}};
  settings.backend = "sm90";
  const Result<attention::Plan> plan = attention::Plan::Create(settings);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().Message().find("2048"), std::string::npos) << plan.error().Message();
}

// B026: samples whose values share no column: nothing of one reaches the other, not even a
// rounding.
TEST_F(AttentionBugsGpu, PackedSamplesDoNotMeet) {
  for (const bool causal : {false, true}) {
    Batch batch(Sequences({100, 77}, {100, 77}), {.causal = causal, .gap = 0}, 47);
    batch.Fill(Batch::Part::kV, [](const Batch::Element& element) {
      const int32_t sequence = element.row < 100 ? 0 : 1;
      return element.column % 2 == sequence ? 3.0f : 0.0f;
    });
    ASSERT_EQ(LaunchAndCheck(batch), "");
    for (const int32_t sequence : {0, 1}) {
      const std::vector<uint16_t> output = batch.OutputOf(sequence);
      for (size_t i = 1 - sequence; i < output.size(); i += 2) {
        ASSERT_EQ(output[i], 0) << "sequence " << sequence << ", element " << i;
      }
    }
  }
}

// B028: rows that see no key, in a hundred runs.
TEST_F(AttentionBugsGpu, RowsWithoutKeysAreZeros) {
  for (const bool causal : {true, false}) {
    Batch batch({{{8, 4}}, {{8, 0}}, {{2, 1}}, {{1, 0}}, {{70, 9}, {70, 0}}}, {.causal = causal},
                53);
    ASSERT_EQ(LaunchAndCheck(batch), "");
    const std::vector<uint16_t> nothing = batch.OutputOf(1);
    EXPECT_TRUE(std::all_of(nothing.begin(), nothing.end(), [](uint16_t v) { return v == 0; }));
    RepeatedRuns runs(batch);
    ASSERT_EQ(runs.First(nullptr), "");
    for (uint32_t run = 0; run < 100; ++run) ASSERT_EQ(runs.Again(run, nullptr), "");
    EXPECT_EQ(runs.Different(), "");
  }
}

// B030 and B002: whatever rows of nobody hold, in Q, K or V or all of them.
TEST_F(AttentionBugsGpu, RowsOfNobodyDoNotMatter) {
  // NaN, infinities, the largest numbers, 65536 (65504), denormals.
  const std::vector<uint16_t> bfloat16 = {0x7fff, 0xffc0, 0x7f80, 0xff80,
                                          0x7f7f, 0x4780, 0x0001, 0x8001};
  const std::vector<uint16_t> float16 = {0x7fff, 0xfe00, 0x7c00, 0xfc00,
                                         0x7bff, 0xfbff, 0x0001, 0x8001};
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const bool causal : {false, true}) {
      Batch batch({{{14, 14}, {150, 187}}, {{3, 9}, {65, 129}}, {{1, 1}, {3, 3}}, {{0, 5}, {7, 0}}},
                  {.causal = causal, .element_type = type, .poison = 0}, 59);
      ASSERT_EQ(LaunchAndCheck(batch), "");
      const std::vector<uint32_t> expected = BitsOf(batch);
      for (const uint16_t poison : type == ElementType::kBFloat16 ? bfloat16 : float16) {
        for (const int parts : {1, 2, 4, 7}) {
          batch.Poison((parts & 1) != 0 ? poison : 0, (parts & 2) != 0 ? poison : 0,
                       (parts & 4) != 0 ? poison : 0);
          ASSERT_EQ(Launch(batch), "");
          batch.Fetch();
          ASSERT_TRUE(BitsOf(batch) == expected)
              << "pattern " << poison << " in parts " << parts << ", causal " << causal;
        }
      }
    }
  }
}

// B032: all real logits are about -120, so a key that is not there but counts as 0 takes all
// weight: every length up to 257 in one launch, whole and in two segments, the rows beside them
// zeros with large values. The output is the mean of the real values.
TEST_F(AttentionBugsGpu, NegativeLogitsLeakNothing) {
  std::vector<SequenceLengths> whole;
  std::vector<SequenceLengths> halved;
  for (int32_t length = 1; length <= 257; ++length) {
    const int32_t q = std::min(length, 3);
    whole.push_back({{q, length}});
    halved.push_back({{q, length / 3}, {0, length - length / 3}});
  }
  const float key = -120.0f * std::sqrt(128.0f);
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    const uint16_t large = type == ElementType::kBFloat16 ? 0x7f7f : 0x7bff;
    for (const bool causal : {false, true}) {
      for (const auto& lengths : {whole, halved}) {
        Batch batch(lengths, {.q_heads = 1, .kv_heads = 1, .causal = causal, .element_type = type},
                    61);
        batch.Fill(Batch::Part::kQ,
                   [](const Batch::Element& e) { return e.column == 0 ? 1.0f : 0.0f; });
        batch.Fill(Batch::Part::kK,
                   [key](const Batch::Element& e) { return e.column == 0 ? key : 0.0f; });
        EXPECT_EQ(LaunchAndCheck(batch), "") << "NaN beside; causal " << causal;
        batch.Poison(0, 0, large);
        EXPECT_EQ(LaunchAndCheck(batch), "") << "zeros beside; causal " << causal;
      }
    }
  }
}

}  // namespace
}  // namespace segue::kernels
