// Layouts that a RowsView can say, and element types, through the CPU back ends.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "attention/naive.h"
#include "base/dtype.h"

namespace segue::attention {
namespace {

// One sequence of one segment over float32 tensors.
struct Single {
  Segment segment;
  NaiveSequence naive;

  void AddNaive(const Options& options) {
    const auto list = [&options](const RowsView& view, int64_t rows, std::vector<NaiveRow>& to) {
      for (int64_t row = 0; row < rows; ++row) {
        to.push_back({static_cast<float*>(view.data) + row * view.row_stride,
                      view.head_stride == 0 ? options.head_dim : view.head_stride});
      }
    };
    list(segment.q, segment.q_rows, naive.q);
    list(segment.o, segment.q_rows, naive.o);
    list(segment.k, segment.kv_rows, naive.k);
    list(segment.v, segment.kv_rows, naive.v);
  }
};

TEST(AttentionLayout, HeadsOutsideRows) {
  // q, o: [H, S, D + 3]; k: [S, H, D + 8], v: [H, S, D].
  const Options options = OptionsOf(4, 2, 24);
  constexpr int64_t kQ = 30;
  constexpr int64_t kKv = 150;
  std::vector<float> q = RandomFloats(4 * kQ * 27, 1);
  std::vector<float> k = RandomFloats(kKv * 2 * 32, 2);
  std::vector<float> v = RandomFloats(2 * kKv * 24, 3);
  std::vector<float> o(4 * kQ * 27, kCanary);
  Single single;
  single.segment = {.q = {q.data(), 27, kQ * 27},
                    .k = {k.data(), 2 * 32, 32},
                    .v = {v.data(), 24, kKv * 24},
                    .o = {o.data(), 27, kQ * 27},
                    .q_rows = kQ,
                    .kv_rows = kKv};
  single.AddNaive(options);
  CheckSequences(options, {{{single.segment}}}, {single.naive}, {&o}, "heads outside rows");
}

TEST(AttentionLayout, SlicesOfAFusedProjectionAndItsOwnOutput) {
  // [S, Q | K | V] with the output over the queries of the next tensor: [S, O | unused].
  const Options options = OptionsOf(2, 1, 16, true);
  constexpr int64_t kRows = 40;
  std::vector<float> fused = RandomFloats(kRows * 64, 4);
  std::vector<float> o(kRows * 50, kCanary);
  Single single;
  single.segment = {.q = {fused.data(), 64},
                    .k = {fused.data() + 32, 64},
                    .v = {fused.data() + 48, 64},
                    .o = {o.data() + 5, 50},
                    .q_rows = kRows,
                    .kv_rows = kRows};
  single.AddNaive(options);
  CheckSequences(options, {{{single.segment}}}, {single.naive}, {&o}, "fused");
}

TEST(AttentionLayout, InputsMayRepeatMemory) {
  // One key/value head and one query row for all, by strides of 0.
  const Options options = OptionsOf(2, 2, 8);
  std::vector<float> q = RandomFloats(2 * 8, 5);
  std::vector<float> kv = RandomFloats(20 * 8, 6);
  std::vector<float> o(6 * 16, kCanary);
  for (const int64_t kv_row_stride : {8, 3, 0}) {
    Single single;
    single.segment = {.q = {q.data(), 0},
                      .k = {kv.data(), kv_row_stride, 4},
                      .v = {kv.data(), kv_row_stride, 1},
                      .o = {o.data(), 16},
                      .q_rows = 6,
                      .kv_rows = 18};
    single.AddNaive(options);
    CheckSequences(options, {{{single.segment}}}, {single.naive}, {&o}, "repeated inputs");
  }
}

TEST(AttentionLayout, RefusesOutputsThatOverlapAndStridesThatLeaveMemory) {
  const Options options = OptionsOf(2, 2, 8);
  std::vector<float> in = RandomFloats(64, 7);
  std::vector<float> out(64, kCanary);
  ThreadPool pool(1);
  const auto error = [&](RowsView k, RowsView o) {
    const Segment segment = {
        .q = {in.data(), 16}, .k = k, .v = {in.data(), 16}, .o = o, .q_rows = 3, .kv_rows = 3};
    const std::vector<Sequence> sequences = {{{segment}}};
    return ErrorOf(
        Attention({.options = options, .sequences = sequences}, {.stream = Stream::Cpu(pool)}));
  };
  const RowsView k = {in.data(), 16};
  EXPECT_EQ(error(k, {out.data(), 15}),
            "attention: o: got rows 15 elements apart, wanted at least 16, so that outputs do not "
            "overlap");
  EXPECT_EQ(error(k, {out.data(), 8, 23}),
            "attention: o: got heads 23 elements apart, wanted at least 24, so that outputs do not "
            "overlap");
  EXPECT_EQ(error(k, {out.data(), 7, 30}),
            "attention: o: got rows 7 elements apart, wanted at least 8, so that outputs do not "
            "overlap");
  EXPECT_EQ(error({in.data(), -16}, {out.data(), 16}),
            "attention: k: got rows -16 elements apart, wanted 0 or more");
  EXPECT_EQ(error({in.data(), 16, int64_t{1} << 62}, {out.data(), 16}),
            "attention: k: got heads 4611686018427387904 elements apart, wanted at most 2^62 "
            "elements in all");
  EXPECT_EQ(error({nullptr, 16}, {out.data(), 16}), "attention: k: got null, wanted 3 rows");
  ExpectCanaries(out, "refused");
  EXPECT_EQ(error(k, {out.data(), 16}), "");
  EXPECT_EQ(error(k, {out.data(), 8, 24}), "");
}

// The reference on 16-bit elements: the float32 reference on the same values, rounded once.
TEST(AttentionLayout, TheReferenceRoundsShortElementsOnce) {
  constexpr int64_t kRows = 33;
  constexpr int32_t kDim = 20;
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    Options options = OptionsOf(2, 1, kDim);
    const bool brain = type == ElementType::kBFloat16;
    const auto narrow = [brain](float x) { return brain ? FloatToBF16(x) : FloatToF16(x); };
    const auto widen = [brain](uint16_t x) { return brain ? BF16ToFloat(x) : F16ToFloat(x); };
    std::vector<float> wide = RandomFloats(kRows * 4 * kDim, 8);
    std::vector<uint16_t> narrow_in;
    for (float& value : wide) {
      narrow_in.push_back(narrow(value));
      value = widen(narrow_in.back());
    }
    std::vector<uint16_t> out(kRows * 2 * kDim, 0xdead);
    std::vector<float> wide_out(out.size());
    std::vector<float> lse(2 * kRows);
    ThreadPool pool(1);
    const auto run = [&](void* in, void* o, int64_t bytes) {
      const auto at = [&](int64_t column) { return static_cast<char*>(in) + column * bytes; };
      const Segment segment = {.q = {in, 4 * kDim},
                               .k = {at(2 * kDim), 4 * kDim},
                               .v = {at(3 * kDim), 4 * kDim},
                               .o = {o, kDim, kRows * kDim},
                               .q_rows = kRows,
                               .kv_rows = kRows};
      const std::vector<Sequence> sequences = {{{segment}}};
      return ErrorOf(Attention(
          {.options = options, .sequences = sequences, .lse = lse.data(), .backend = "ref"},
          {.stream = Stream::Cpu(pool)}));
    };
    ASSERT_EQ(run(wide.data(), wide_out.data(), 4), "");
    const std::vector<float> wide_lse = lse;
    options.element_type = type;
    ASSERT_EQ(run(narrow_in.data(), out.data(), 2), "");
    EXPECT_EQ(lse, wide_lse);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], narrow(wide_out[i])) << i;
  }
}

// A mean that lies just above the middle between two bfloat16 values, by less than float32 shows.
TEST(AttentionLayout, TheReferenceDoesNotRoundTwice) {
  Options options = OptionsOf(1, 1, 1);
  options.element_type = ElementType::kBFloat16;
  options.softmax_scale = 1.0f;
  // Weights e^0 and e^-20: 1 + 2^-8 is a tie, which goes to even, 1, unless something is added.
  // v of the likely keys averages to 1 + 2^-8 exactly; the unlikely key adds about 2e-9.
  const uint16_t zero = FloatToBF16(0.0f);
  std::vector<uint16_t> q = {FloatToBF16(1.0f)};
  std::vector<uint16_t> k = {zero, zero, FloatToBF16(-20.0f)};
  std::vector<uint16_t> v = {FloatToBF16(1.0f), FloatToBF16(1.0078125f), FloatToBF16(2.0f)};
  uint16_t o = 0;
  ThreadPool pool(1);
  const auto run = [&](int64_t keys) {
    const Segment segment = {.q = {q.data(), 1},
                             .k = {k.data(), 1},
                             .v = {v.data(), 1},
                             .o = {&o, 1},
                             .q_rows = 1,
                             .kv_rows = keys};
    const std::vector<Sequence> sequences = {{{segment}}};
    EXPECT_TRUE(Attention({.options = options, .sequences = sequences, .backend = "ref"},
                          {.stream = Stream::Cpu(pool)})
                    .ok());
    return BF16ToFloat(o);
  };
  EXPECT_EQ(run(2), 1.0f);
  EXPECT_EQ(run(3), 1.0078125f);
}

}  // namespace
}  // namespace segue::attention
