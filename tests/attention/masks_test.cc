// The forms with padding inside: prefix and main, masks with holes, indices; and segments that
// bring their own pointers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "attention/forms.h"

namespace segue::attention {
namespace {

constexpr int64_t kDim = 12;

// Prefix and main -------------------------------------------------------------------------------

struct Joint {
  Joint(const Options& options, int32_t batch_size, int32_t prefix, int32_t main)
      : batch(batch_size),
        prefix_rows(prefix),
        main_rows(main),
        text(options, int64_t{batch_size} * prefix, 8),
        image(options, int64_t{batch_size} * main, 9) {
    text.SetBatch(prefix);
    image.SetBatch(main);
  }

  PrefixMain Form() const {
    return {.prefix = text.AsDense(batch, prefix_rows), .main = image.AsDense(batch, main_rows)};
  }

  // What a mask [batch, prefix_rows + main_rows] means; rows that take no part are poisoned.
  std::vector<NaiveSequence> Naive(const std::vector<uint8_t>& mask, bool zero_padding) {
    std::vector<NaiveSequence> sequences(zero_padding ? 2 * batch : batch);
    for (int32_t b = 0; b < batch; ++b) {
      for (int32_t row = 0; row < prefix_rows + main_rows; ++row) {
        Fused& part = row < prefix_rows ? text : image;
        const int32_t at = row < prefix_rows ? row : row - prefix_rows;
        if (mask[b * (prefix_rows + main_rows) + row] != 0) {
          part.tensors.AddRow(sequences[b], at, b);
          continue;
        }
        const Tensor& q = part.tensors.q;  // the first of the fused row
        std::fill_n(q.Row(at, b).data, q.row_stride, std::numeric_limits<float>::quiet_NaN());
        if (zero_padding) part.tensors.AddQuery(sequences[batch + b], at, b);
      }
    }
    return sequences;
  }

  std::vector<std::vector<float>*> Outputs() { return {&text.out, &image.out}; }

  int32_t batch, prefix_rows, main_rows;
  Fused text, image;
};

TEST(AttentionAdapters, PrefixMain) {
  const Options options = OptionsOf(2, 1, kDim);
  const std::vector<int32_t> prefix_lengths = {5, 0, 9};
  const std::vector<int32_t> main_lengths = {30, 17, 0};
  for (const bool zero_padding : {false, true}) {
    for (const bool whole : {false, true}) {
      Joint joint(options, 3, 9, 30);
      PrefixMain form = joint.Form();
      form.prefix_lengths = prefix_lengths;
      if (!whole) form.main_lengths = main_lengths;
      form.zero_padding = zero_padding;
      std::vector<uint8_t> mask(3 * 39);
      for (int32_t b = 0; b < 3; ++b) {
        std::fill_n(mask.begin() + b * 39, prefix_lengths[b], 1);
        std::fill_n(mask.begin() + b * 39 + 9, whole ? 30 : main_lengths[b], 1);
      }
      const std::vector<NaiveSequence> naive = joint.Naive(mask, zero_padding);
      const Result<Batch> batch = FromPrefixMain(form, options);
      Check(options, batch, naive, joint.Outputs(), "prefix and main");
      EXPECT_EQ(batch->tensors.size(), 2u);
      EXPECT_EQ(batch->segments, 2);
      // The same as a mask.
      form.prefix_lengths = form.main_lengths = {};
      Check(options, FromKeyMask(form, mask, options), naive, joint.Outputs(), "lengths as a mask");
    }
  }
}

TEST(AttentionAdapters, PrefixMainWithoutOneOfThem) {
  const Options options = OptionsOf(2, 2, kDim);
  for (const auto& [prefix, main] : {std::pair{0, 20}, {20, 0}, {0, 0}}) {
    Joint joint(options, 2, prefix, main);
    PrefixMain form = joint.Form();
    const std::vector<int32_t> lengths = {prefix, prefix};
    form.prefix_lengths = lengths;
    Check(options, FromPrefixMain(form, options),
          joint.Naive(std::vector<uint8_t>(2 * (prefix + main), 1), false), joint.Outputs(),
          "prefix of " + std::to_string(prefix));
  }
}

TEST(AttentionAdapters, PrefixMainErrors) {
  const Options options = OptionsOf(2, 2, kDim);
  Joint joint(options, 2, 9, 30);
  const auto error = [&](std::vector<int32_t> prefix, std::vector<int32_t> main,
                         void (*change)(PrefixMain&) = nullptr) {
    PrefixMain form = joint.Form();
    form.prefix_lengths = prefix;
    form.main_lengths = main;
    if (change != nullptr) change(form);
    return ErrorOf(FromPrefixMain(form, options));
  };
  const std::string op = "attention from prefix and main: ";
  EXPECT_EQ(error({9, 9}, {}), "");
  EXPECT_EQ(error({9}, {}),
            op + "prefix_lengths: got 1 lengths, wanted one for each of 2 sequences");
  EXPECT_EQ(error({9, 9}, {1, 2, 3}),
            op + "main_lengths: got 3 lengths, wanted one for each of 2 sequences");
  EXPECT_EQ(error({9, -1}, {}), op + "prefix_lengths[1]: got -1, wanted 0 to 9");
  EXPECT_EQ(error({10, 9}, {}), op + "prefix_lengths[0]: got 10, wanted 0 to 9");
  EXPECT_EQ(error({9, 9}, {30, 31}), op + "main_lengths[1]: got 31, wanted 0 to 30");
  EXPECT_EQ(error({9, 9}, {}, [](PrefixMain& form) { form.main.kv_rows = 29; }),
            op + "main: got 30 query and 29 key/value rows, wanted as many of both");
  EXPECT_EQ(error({9, 9}, {}, [](PrefixMain& form) { form.main.batch = 3; }),
            op + "main.batch: got 3, wanted prefix.batch, 2");
  EXPECT_EQ(error({9, 9}, {}, [](PrefixMain& form) { form.prefix.k.rows.data = nullptr; }),
            op + "prefix.k: got null, wanted 9 rows");
  const std::string mask_op = "attention from a key mask: ";
  const std::vector<uint8_t> mask(2 * 39, 1);
  EXPECT_EQ(ErrorOf(FromKeyMask(joint.Form(), std::span(mask).first(77), options)),
            mask_op + "mask: got 77 entries, wanted 2 x 39");
  PrefixMain form = joint.Form();
  const std::vector<int32_t> lengths = {9, 9};
  form.main_lengths = lengths;
  EXPECT_EQ(ErrorOf(FromKeyMask(form, mask, options)),
            mask_op + "main_lengths: got 2 lengths, wanted none beside a mask");
  ExpectCanaries(joint.text.out, "errors");
}

// Masks -----------------------------------------------------------------------------------------

TEST(AttentionAdapters, MasksWithHoles) {
  const Options options = OptionsOf(2, 1, kDim);
  // Left-padded, two gaps, and every other mask of 5 keys; none of them is a count.
  for (int bits = 0; bits < 32; ++bits) {
    std::vector<uint8_t> mask;
    for (int sequence = 0; sequence < 2; ++sequence) {
      for (int i = 0; i < 5; ++i) mask.push_back((bits >> (sequence == 0 ? i : 4 - i)) & 1 ? 7 : 0);
    }
    for (const bool zero_padding : {false, true}) {
      Joint joint(options, 2, 3, 2);
      PrefixMain form = joint.Form();
      form.zero_padding = zero_padding;
      const std::vector<NaiveSequence> naive = joint.Naive(mask, zero_padding);
      Check(options, FromKeyMask(form, mask, options), naive, joint.Outputs(),
            "mask " + std::to_string(bits));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionAdapters, RandomMasks) {
  std::mt19937 random(10);
  for (int round = 0; round < 40; ++round) {
    const Options options = OptionsOf(2, 2, kDim, round % 2 == 1);
    const int32_t prefix = static_cast<int32_t>(random() % 40);
    const int32_t main = static_cast<int32_t>(random() % 80);
    Joint joint(options, 3, prefix, main);
    std::vector<uint8_t> mask(3 * (prefix + main));
    const uint32_t runs = 1 + random() % 9;
    for (size_t i = 0; i < mask.size(); ++i) {
      mask[i] = i > 0 && random() % runs != 0 ? mask[i - 1] : random() % 2;
    }
    if (round % 5 == 0) std::fill_n(mask.begin(), prefix + main, 0);  // a sequence without rows
    if (round % 7 == 0 && !mask.empty()) mask.back() = 1;
    PrefixMain form = joint.Form();
    form.zero_padding = round % 3 == 0;
    const std::vector<NaiveSequence> naive = joint.Naive(mask, form.zero_padding);
    Check(options, FromKeyMask(form, mask, options), naive, joint.Outputs(),
          "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

// Indices ---------------------------------------------------------------------------------------

Result<Batch> FromIndices(const Fused& fused, int32_t total, const std::vector<int64_t>& indices,
                          const std::vector<int32_t>& bounds, const Options& options) {
  return FromRowIndices({.q = fused.tensors.q.View(),
                         .k = fused.tensors.k.View(),
                         .v = fused.tensors.v.View(),
                         .o = fused.tensors.o.View(),
                         .total = total,
                         .indices = indices,
                         .cu_seqlens = bounds},
                        options);
}

TEST(AttentionAdapters, RowIndices) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    const Options options = OptionsOf(2, 1, kDim, round % 2 == 1);
    const int32_t total = static_cast<int32_t>(random() % 90);
    std::vector<int64_t> indices(total);
    std::iota(indices.begin(), indices.end(), 0);
    if (round % 3 == 0) std::shuffle(indices.begin(), indices.end(), random);
    std::erase_if(indices, [&](int64_t) { return random() % 4 == 0; });
    std::vector<int32_t> bounds = {0};
    for (int b = 0; b < 3; ++b) {
      bounds.push_back(bounds.back() + static_cast<int32_t>(random() % (indices.size() / 3 + 1)));
    }
    indices.resize(bounds.back());
    Fused fused(options, total, 12);
    std::vector<NaiveSequence> naive(3);
    for (size_t b = 0; b < 3; ++b) {
      for (int32_t i = bounds[b]; i < bounds[b + 1]; ++i) {
        fused.tensors.AddRow(naive[b], indices[i]);
      }
    }
    Check(options, FromIndices(fused, total, indices, bounds, options), naive, {&fused.out},
          "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionAdapters, RowIndicesBecomeRuns) {
  const Options options = OptionsOf(1, 1, kDim);
  const Fused fused(options, 20, 13);
  const Result<Batch> batch =
      FromIndices(fused, 20, {3, 4, 5, 9, 8, 7, 0, 1}, {0, 6, 6, 8}, options);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->segments, 4);
  std::vector<std::array<int32_t, 2>> runs;
  for (const SegmentRows& rows : batch->rows) runs.push_back({rows.q_begin, rows.kv_rows});
  const std::vector<std::array<int32_t, 2>> want = {{3, 3}, {9, 1}, {8, 1}, {7, 1}, {0, 0}, {0, 0},
                                                    {0, 0}, {0, 0}, {0, 2}, {0, 0}, {0, 0}, {0, 0}};
  EXPECT_EQ(runs, want);
}

TEST(AttentionAdapters, RowIndicesErrors) {
  const Options options = OptionsOf(1, 1, kDim);
  const Fused fused(options, 10, 14);
  const auto error = [&](const std::vector<int64_t>& indices, const std::vector<int32_t>& bounds) {
    return ErrorOf(FromIndices(fused, 10, indices, bounds, options));
  };
  const std::string op = "attention from row indices: ";
  EXPECT_EQ(error({1, 2, 9}, {0, 3}), "");
  EXPECT_EQ(error({1, 2, 10}, {0, 3}), op + "indices[2]: got 10, wanted a row of 10");
  EXPECT_EQ(error({1, -1, 2}, {0, 3}), op + "indices[1]: got -1, wanted a row of 10");
  EXPECT_EQ(error({4, 7, 2, 7}, {0, 2, 4}),
            op + "indices[3]: got 7, wanted a row that indices[1] has not taken");
  EXPECT_EQ(error({1, 2, 3}, {0, 2}), op + "cu_seqlens[1]: got 2, wanted the number of indices, 3");
  EXPECT_EQ(error({1, 2, 3}, {}), op + "cu_seqlens: got no bounds, wanted at least 1, a zero");
  EXPECT_EQ(error({1, 2, 3}, {0, 4, 3}),
            op + "cu_seqlens[1]: got 4, wanted at most the number of indices, 3");
}

// Pointers --------------------------------------------------------------------------------------

Segment SegmentOf(const Fused& fused, int64_t row, int64_t rows) {
  const auto from = [row](const Tensor& tensor) {
    RowsView view = tensor.View();
    view.data = tensor.Row(row).data;
    return view;
  };
  return {.q = from(fused.tensors.q),
          .k = from(fused.tensors.k),
          .v = from(fused.tensors.v),
          .o = from(fused.tensors.o),
          .q_rows = rows,
          .kv_rows = rows};
}

TEST(AttentionAdapters, SegmentsThatFollowOneAnotherShareATensorSet) {
  const Options options = OptionsOf(2, 1, kDim);
  const Fused fused(options, 100, 15);
  // In any order: [0, 10), [10, 30), [30, 60); then a gap; then [70, 100).
  const std::vector<Sequence> sequences = {{{SegmentOf(fused, 30, 30), SegmentOf(fused, 0, 10)}},
                                           {{SegmentOf(fused, 70, 30)}},
                                           {{SegmentOf(fused, 10, 20)}}};
  const Result<Batch> batch = FromSequences(sequences, options);
  ASSERT_TRUE(batch.ok()) << batch.error().Message();
  ASSERT_EQ(batch->tensors.size(), 2u);
  EXPECT_EQ(batch->tensors[0].q.data, fused.tensors.q.Row(0).data);
  EXPECT_EQ(batch->tensors[0].v.data, fused.tensors.v.Row(0).data);
  EXPECT_EQ(batch->tensors[0].q_rows, 60);
  EXPECT_EQ(batch->tensors[0].kv_rows, 60);
  EXPECT_EQ(batch->tensors[1].o.data, fused.tensors.o.Row(70).data);
  EXPECT_EQ(batch->tensors[1].kv_rows, 30);
  EXPECT_EQ(batch->rows[0].q_begin, 30);
  EXPECT_EQ(batch->rows[1].kv_begin, 0);
  EXPECT_EQ(batch->rows[2].source, 1);
  EXPECT_EQ(batch->rows[4].q_begin, 10);
}

TEST(AttentionAdapters, SegmentsWithOneHalfNeedNoSetOfTheirOwn) {
  const Options options = OptionsOf(2, 1, kDim);
  const Fused text(options, 20, 16);
  const Fused image(options, 50, 17);
  // Cross-attention: the image asks, the text answers, twice.
  Segment asks = SegmentOf(image, 0, 50);
  asks.kv_rows = 0;
  Segment answers = SegmentOf(text, 0, 20);
  answers.q_rows = 0;
  Segment rest = answers;
  rest.kv_rows = 12;
  const Result<Batch> batch =
      FromSequences(std::vector<Sequence>{{{asks, answers}}, {{rest}}}, options);
  ASSERT_TRUE(batch.ok()) << batch.error().Message();
  ASSERT_EQ(batch->tensors.size(), 1u);
  EXPECT_EQ(batch->tensors[0].q_rows, 50);
  EXPECT_EQ(batch->tensors[0].kv_rows, 20);
}

// A segment in one of many layouts, its rows possibly next to those of others.
TEST(AttentionAdapters, RandomSequences) {
  std::mt19937 random(18);
  const Options options = OptionsOf(2, 1, kDim);
  for (int round = 0; round < 60; ++round) {
    std::array<std::unique_ptr<Fused>, 3> tensors;
    std::array<int64_t, 3> next{};
    for (auto& tensor : tensors) tensor = std::make_unique<Fused>(options, 200, random());
    std::vector<Sequence> sequences(random() % 5);
    std::vector<NaiveSequence> naive(sequences.size());
    for (int i = 0; i < 12 && !sequences.empty(); ++i) {
      const size_t s = random() % sequences.size();
      const size_t t = random() % 3;
      if (random() % 3 == 0) next[t] += random() % 3;  // a gap
      const auto rows = static_cast<int64_t>(random() % 15);
      Segment segment = SegmentOf(*tensors[t], next[t], rows);
      if (random() % 4 == 0) segment.q_rows = 0;
      if (random() % 4 == 0) segment.kv_rows = 0;
      for (int64_t row = next[t]; row < next[t] + rows; ++row) {
        if (segment.q_rows > 0) tensors[t]->tensors.AddQuery(naive[s], row);
        if (segment.kv_rows > 0) tensors[t]->tensors.AddKey(naive[s], row);
      }
      sequences[s].segments.push_back(segment);
      next[t] += rows;
    }
    std::vector<std::vector<float>*> outputs;
    for (auto& tensor : tensors) outputs.push_back(&tensor->out);
    CheckSequences(options, sequences, naive, outputs, "round " + std::to_string(round));
    const Result<Batch> batch = FromSequences(sequences, options);
    Check(options, batch, naive, outputs, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
    // Readable rows are rows of segments.
    int64_t covered = 0;
    int64_t readable = 0;
    for (const NaiveSequence& sequence : naive) covered += static_cast<int64_t>(sequence.k.size());
    for (const TensorSet& set : batch->tensors) readable += set.kv_rows;
    EXPECT_GE(readable, covered);  // a run may stand in several sets
    for (const TensorSet& set : batch->tensors) {
      for (int32_t row = 0; row < set.kv_rows; ++row) {
        const float* k = static_cast<float*>(set.k.data) + row * set.k.row_stride;
        const bool found = std::any_of(naive.begin(), naive.end(), [k](const NaiveSequence& s) {
          return std::any_of(s.k.begin(), s.k.end(),
                             [k](const NaiveRow& candidate) { return candidate.data == k; });
        });
        ASSERT_TRUE(found) << "round " << round << ", row " << row;
      }
    }
  }
}

TEST(AttentionAdapters, TenThousandSequencesJoinQuickly) {
  const Options options = OptionsOf(1, 1, 4);
  constexpr int kCount = 10000;
  const Fused fused(options, 2 * kCount, 19);
  std::vector<Sequence> sequences;
  for (int i = 0; i < kCount; ++i) {
    sequences.push_back({{SegmentOf(fused, 2 * ((i * 7919) % kCount), 2)}});
  }
  const Result<Batch> batch = FromSequences(sequences, options);
  ASSERT_TRUE(batch.ok());
  ASSERT_EQ(batch->tensors.size(), 1u);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(batch->rows[i].q_begin, 2 * ((i * 7919) % kCount));
}

TEST(AttentionAdapters, SequencesErrors) {
  const Options options = OptionsOf(2, 2, kDim);
  const Fused fused(options, 40, 20);
  const auto error = [&options](const std::vector<Segment>& first,
                                const std::vector<Segment>& second) {
    return ErrorOf(FromSequences(std::vector<Sequence>{{first}, {second}}, options));
  };
  const std::string op = "attention from sequences: ";
  const Segment good = SegmentOf(fused, 0, 10);
  EXPECT_EQ(error({good}, {SegmentOf(fused, 10, 10)}), "");
  EXPECT_EQ(error({good}, {SegmentOf(fused, 20, 2), SegmentOf(fused, 9, 10)}),
            op + "sequence 1, segment 1, o: got rows that sequence 0, segment 0 writes as well, "
                 "wanted rows of its own");
  Segment bad = good;
  bad.kv_rows = -1;
  EXPECT_EQ(error({good}, {bad}),
            op + "sequence 1, segment 0, kv_rows: got -1, wanted 0 to 2^31 - 1");
  bad = good;
  bad.q_rows = int64_t{1} << 31;
  EXPECT_EQ(error({}, {bad}),
            op + "sequence 1, segment 0, q_rows: got 2147483648, wanted 0 to 2^31 - 1");
  bad = good;
  bad.v.data = nullptr;
  EXPECT_EQ(error({bad}, {}), op + "sequence 0, segment 0, v: got null, wanted 10 rows");
  bad = good;
  bad.o.row_stride = 23;
  EXPECT_EQ(error({bad}, {}),
            op + "sequence 0, segment 0, o: got rows 23 elements apart, wanted at least 24, so "
                 "that outputs do not overlap");
  // [H, S, D] outputs: the rows after those of head 0 are those of head 1.
  std::vector<float> out(2 * 10 * kDim);
  Segment heads = good;
  heads.o = {out.data(), kDim, 10 * kDim};
  Segment behind = SegmentOf(fused, 10, 10);
  behind.o = {out.data() + 10 * kDim, kDim, 10 * kDim};
  EXPECT_EQ(error({heads}, {}), "");
  behind.q = {static_cast<float*>(heads.q.data) + 10 * heads.q.row_stride, heads.q.row_stride};
  EXPECT_EQ(error({heads}, {behind}),
            op + "sequence 0, segment 0, o with the rows that follow it: got heads 120 elements "
                 "apart, wanted at least 240, so that outputs do not overlap");
}

}  // namespace
}  // namespace segue::attention
