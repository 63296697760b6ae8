// Public reports about numbers, layouts and repeatability of attention, each as a case of our
// kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/attention_case.h"
#include "gpu/plan_rig.h"
#include "gpu/repeated_runs.h"
#include "segue/attention_plan.h"

namespace segue::kernels {
namespace {

using attention::ElementType;
using attention::GpuPlan;
using attention::PlanSettings;
using attention::TensorSet;

class AttentionNumericsGpu : public AttentionCase {};

constexpr int64_t kDim = 128;
constexpr uint16_t kCanary = 0x7fc1;

std::vector<uint16_t> RandomRows(int64_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> values(elements);
  // Both signs, 1/8 to 2.
  for (uint16_t& value : values) {
    value = static_cast<uint16_t>(0x3e00 + random() % 0x200 + (random() % 2) * 0x8000);
  }
  return values;
}

PlanSettings SettingsOf(int32_t q_heads, int32_t kv_heads, attention::TensorRows rows,
                        const char* backend = "sm90") {
  PlanSettings settings;
  settings.options = {.q_heads = q_heads,
                      .kv_heads = kv_heads,
                      .head_dim = kDim,
                      .softmax_scale = 0.0884f,
                      .element_type = ElementType::kBFloat16};
  settings.place = attention::Place::kCuda;
  settings.max_sequences = settings.max_segments = 1;
  settings.tensors = {rows};
  settings.backend = backend;
  return settings;
}

// B033: queries a thousand times as large. (Keys are never split, so there is nothing to merge.)
TEST_F(AttentionNumericsGpu, LargeQueries) {
  for (const float scale : {1.0f, 10.0f, 100.0f, 1000.0f}) {
    for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
      for (const bool causal : {false, true}) {
        Batch batch({{{65, 300}}, {{14, 14}, {130, 353}}}, {.causal = causal, .element_type = type},
                    67);
        batch.Fill(Batch::Part::kQ,
                   [scale](const Batch::Element& element) { return scale * element.value; });
        EXPECT_EQ(LaunchAndCheck(batch), "") << "times " << scale << ", causal " << causal;
      }
    }
  }
}

// Logits of 6.5e5 and -6.5e5, and values at the end of float16's range.
TEST_F(AttentionNumericsGpu, LogitsAndValuesAtTheEndOfTheirRange) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    for (const bool causal : {false, true}) {
      Batch batch({{{65, 300}}, {{14, 14}, {130, 353}}}, {.causal = causal, .element_type = type},
                  71);
      batch.Fill(Batch::Part::kQ, [](const Batch::Element&) { return 240.0f; });
      batch.Fill(Batch::Part::kK,
                 [](const Batch::Element& e) { return e.row % 2 == 0 ? 240.0f : -240.0f; });
      EXPECT_EQ(LaunchAndCheck(batch), "") << "logits; causal " << causal;
      batch.Fill(Batch::Part::kQ, [](const Batch::Element&) { return 0.0f; });
      batch.Fill(Batch::Part::kV,
                 [](const Batch::Element& e) { return e.column % 2 == 0 ? 65504.0f : -65504.0f; });
      EXPECT_EQ(LaunchAndCheck(batch), "") << "values; causal " << causal;
    }
  }
}

// B037: 8/2, 9/3, 21/7 and 96/8 heads, several tiles of queries.
TEST_F(AttentionNumericsGpu, GroupedHeadsOfEveryRatio) {
  const int32_t heads[][2] = {{8, 2}, {9, 3}, {21, 7}, {96, 8}};
  for (const auto& [q_heads, kv_heads] : heads) {
    for (const bool causal : {true, false}) {
      RunAndCheck({{{1, 1}}, {{127, 127}}, {{129, 129}}, {{300, 300}}},
                  {.q_heads = q_heads, .kv_heads = kv_heads, .causal = causal, .rows_apart = 29});
    }
  }
}

// B039: one query and 2^16 keys, one fewer, one more.
TEST_F(AttentionNumericsGpu, OneQueryAndManyKeys) {
  for (const int32_t keys : {65535, 65536, 65537}) {
    for (const bool causal : {false, true}) {
      RunAndCheck({{{1, keys}}}, {.q_heads = 1, .kv_heads = 1, .causal = causal});
    }
  }
}

// B042: each shape 200 times on two streams at once.
TEST_F(AttentionNumericsGpu, TwoHundredRunsOnTwoStreams) {
  struct Shape {
    std::vector<SequenceLengths> lengths;
    BatchOptions options;
  };
  const Shape shapes[] = {
      {{{{129, 129}}}, {.q_heads = 16, .kv_heads = 2}},
      {{{{129, 129}}},
       {.q_heads = 16, .kv_heads = 2, .causal = true, .element_type = ElementType::kFloat16}},
      {{{{14, 14}, {300, 390}}, {{14, 14}, {300, 390}}}, {.q_heads = 4, .kv_heads = 4}},
      {{{{64, 64}, {1, 700}}, {{0, 9}, {333, 0}}, {{1, 1}}}, {.q_heads = 12, .kv_heads = 4}},
      {{{{300, 300}}, {{5, 200}, {100, 61}}}, {.q_heads = 6, .kv_heads = 2, .causal = true}},
  };
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  for (const Shape& shape : shapes) {
    Batch one(shape.lengths, shape.options, 73);
    Batch two(shape.lengths, shape.options, 73);
    ASSERT_EQ(LaunchAndCheck(one), "");
    ASSERT_EQ(LaunchAndCheck(two), "");
    ASSERT_TRUE(BitsOf(one) == BitsOf(two));
    RepeatedRuns first(one);
    RepeatedRuns second(two);
    ASSERT_EQ(first.First(streams[0]), "");
    ASSERT_EQ(second.First(streams[1]), "");
    for (uint32_t run = 0; run < 200; ++run) {
      ASSERT_EQ(first.Again(run, streams[0]), "");
      ASSERT_EQ(second.Again(run, streams[1]), "");
    }
    EXPECT_EQ(first.Different(), "") << shape.options.q_heads << " heads";
    EXPECT_EQ(second.Different(), "") << shape.options.q_heads << " heads";
  }
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

// B053: inputs are only read.
TEST_F(AttentionNumericsGpu, InputsStayAsTheyAre) {
  for (const bool causal : {false, true}) {
    Batch batch({{{14, 14}, {150, 187}}, {{65, 129}, {0, 40}}}, {.causal = causal}, 79);
    ASSERT_EQ(LaunchAndCheck(batch), "");
    EXPECT_TRUE(batch.InputsUntouched()) << "causal " << causal;
  }
}

// Where the heads of one tensor lie.
struct Layout {
  const char* name;
  int64_t offset, row_stride, head_stride;  // elements
};

// Q, K, V and O in turn, and all of them, in the first `kinds` layouts: the bytes of contiguous
// tensors.
void CheckLayouts(const char* backend, int kinds) {
  constexpr int64_t kRows = 200;
  constexpr int64_t kHeads[4] = {4, 2, 2, 4};
  const std::vector<uint16_t> contents[3] = {RandomRows(kRows * 4 * kDim, 1),
                                             RandomRows(kRows * 2 * kDim, 2),
                                             RandomRows(kRows * 2 * kDim, 3)};
  const auto layout_of = [](int kind, int64_t heads) {
    const Layout layouts[] = {{"contiguous", 0, heads * kDim, kDim},
                              {"transposed", 0, kDim, kRows * kDim},
                              {"a slice of fused rows", 256, 3 * heads * kDim, kDim},
                              {"padded heads", 0, heads * (kDim + 8), kDim + 8},
                              {"a base 8 elements on", 8, heads * kDim, kDim},
                              {"a base one element on", 1, heads * kDim, kDim},
                              {"odd strides", 0, heads * (kDim + 3) + 2, kDim + 3}};
    return layouts[kind];
  };
  const PlanSettings settings = SettingsOf(4, 2, {kRows, 177}, backend);
  GpuPlan plan(settings);
  ASSERT_EQ(plan.failure(), "");
  ASSERT_EQ(plan.SetLengths({{0, 0, kRows, 0, 177}}), "");

  std::vector<uint16_t> expected;
  for (int part = 0; part < 5; ++part) {
    for (int kind = 0; kind < kinds; ++kind) {
      if (kind == 0 && part > 0) continue;
      std::vector<std::unique_ptr<GpuMemory>> memory;
      std::vector<attention::RowsView> views;
      std::vector<uint16_t> host;
      Layout layout{};
      for (int i = 0; i < 4; ++i) {
        layout = layout_of(part == i || part == 4 ? kind : 0, kHeads[i]);
        // The output comes last and is what is left in `host`.
        host.assign(16 + kRows * 3 * kHeads[i] * kDim, kCanary);
        for (int64_t at = 0; i < 3 && at < kRows * kHeads[i] * kDim; ++at) {
          host[layout.offset + at / (kHeads[i] * kDim) * layout.row_stride +
               at / kDim % kHeads[i] * layout.head_stride + at % kDim] = contents[i][at];
        }
        memory.push_back(std::make_unique<GpuMemory>(static_cast<int64_t>(host.size()) * 2));
        memory.back()->Write(host.data());
        views.push_back({static_cast<uint16_t*>(memory.back()->data()) + layout.offset,
                         layout.row_stride, layout.head_stride});
      }
      const TensorSet set{.q = views[0],
                          .k = views[1],
                          .v = views[2],
                          .o = views[3],
                          .q_rows = kRows,
                          .kv_rows = 177};
      ASSERT_EQ(plan.Run({set}), "") << "part " << part << ": " << layout_of(kind, 1).name;
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      memory.back()->Read(host.data());
      std::vector<uint16_t> got(kRows * 4 * kDim);
      for (int64_t at = 0; at < kRows * 4 * kDim; ++at) {
        uint16_t& element = host[layout.offset + at / (4 * kDim) * layout.row_stride +
                                 at / kDim % 4 * layout.head_stride + at % kDim];
        got[at] = element;
        element = kCanary;
      }
      EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](uint16_t v) { return v == kCanary; }))
          << "written beside the output; part " << part << ": " << layout_of(kind, 1).name;
      if (expected.empty()) expected = got;
      EXPECT_TRUE(got == expected) << "part " << part << ": " << layout_of(kind, 1).name;
    }
  }
  EXPECT_TRUE(std::none_of(expected.begin(), expected.end(), [](uint16_t value) {
    return (value & 0x7fff) > 0x7f80;
  })) << "NaN";
}

// B034.
TEST_F(AttentionNumericsGpu, StridesAreHonoured) { CheckLayouts("sm90", 5); }
TEST_F(AttentionNumericsGpu, StridesOfAnyKindAreHonoured) { CheckLayouts("cuda", 7); }

// B031: tokens padded to a multiple of the ranks, NaN in the padding, heads divided among ranks:
// each rank's bytes are those of all heads on one.
TEST_F(AttentionNumericsGpu, HeadsOfARankWithPaddedTokens) {
  constexpr int32_t kHeads = 4;
  constexpr int64_t kWidth = 3 * kHeads * kDim;
  for (const int32_t tokens : {1, 2, 3, 4095, 4097}) {
    const int32_t padded = (tokens + 3) / 4 * 4;
    std::vector<uint16_t> fused = RandomRows(padded * kWidth, 5);
    std::fill(fused.begin() + tokens * kWidth, fused.end(), uint16_t{0x7fff});
    GpuMemory device(static_cast<int64_t>(fused.size()) * 2);
    device.Write(fused.data());
    const int64_t out_elements = int64_t{padded} * kHeads * kDim;
    GpuMemory output(out_elements * 2);
    std::vector<uint16_t> expected;
    for (const int32_t ranks : {1, 2, 4}) {
      const std::vector<uint16_t> canaries(out_elements, kCanary);
      output.Write(canaries.data());
      GpuPlan plan(SettingsOf(kHeads / ranks, kHeads / ranks, {padded, padded}));
      ASSERT_EQ(plan.failure(), "");
      ASSERT_EQ(plan.SetLengths({{0, 0, tokens, 0, tokens}}), "");
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const int64_t first = int64_t{rank} * (kHeads / ranks) * kDim;
        auto* q = static_cast<uint16_t*>(device.data()) + first;
        const TensorSet set{
            .q = {q, kWidth},
            .k = {q + kHeads * kDim, kWidth},
            .v = {q + 2 * kHeads * kDim, kWidth},
            .o = {static_cast<uint16_t*>(output.data()) + first, int64_t{kHeads} * kDim},
            .q_rows = padded,
            .kv_rows = padded};
        ASSERT_EQ(plan.Run({set}), "");
      }
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      std::vector<uint16_t> got(out_elements);
      output.Read(got.data());
      EXPECT_TRUE(std::all_of(got.begin() + int64_t{tokens} * kHeads * kDim, got.end(),
                              [](uint16_t value) { return value == kCanary; }))
          << "padding written; " << tokens << " tokens, " << ranks << " ranks";
      if (expected.empty()) expected = got;
      EXPECT_TRUE(got == expected) << tokens << " tokens, " << ranks << " ranks";
      got.resize(int64_t{tokens} * kHeads * kDim);
      EXPECT_TRUE(std::none_of(got.begin(), got.end(),
                               [](uint16_t value) { return (value & 0x7f80) == 0x7f80; }))
          << "not finite; " << tokens << " tokens, " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace segue::kernels
