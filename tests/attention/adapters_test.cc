// Every form callers have, against the definition over rows listed by hand, through both CPU back
// ends, with and without a plan.
#include "segue/attention_adapters.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "attention/forms.h"

namespace segue::attention {
namespace {

// Dense ------------------------------------------------------------------------------------------

// [B, Sq, H, D] and [B, Skv, Hkv, D] in any order of dimensions.
struct DenseCase {
  const char* name;
  int32_t batch, q_rows, kv_rows;
  // Strides of batch, rows, heads of [B, S, H, D], given S and H.
  std::array<int64_t, 3> (*strides)(int64_t batch, int64_t rows, int64_t heads);
  size_t sets;
};

constexpr int64_t kDim = 12;

std::array<int64_t, 3> Bshd(int64_t, int64_t rows, int64_t heads) {
  return {rows * heads * kDim, heads * kDim, kDim};
}
std::array<int64_t, 3> Bhsd(int64_t, int64_t rows, int64_t heads) {
  return {rows * heads * kDim, kDim, rows * kDim};
}
std::array<int64_t, 3> Sbhd(int64_t batch, int64_t, int64_t heads) {
  return {heads * kDim, batch * heads * kDim, kDim};
}
// A slice of slots of 50 rows.
std::array<int64_t, 3> Slots(int64_t, int64_t, int64_t heads) {
  return {50 * heads * kDim, heads * kDim, kDim};
}
// Batches that no number of rows keeps apart.
std::array<int64_t, 3> Odd(int64_t, int64_t rows, int64_t heads) {
  return {rows * heads * kDim + 5, heads * kDim, kDim};
}

TEST(AttentionAdapters, Dense) {
  const DenseCase cases[] = {
      {"BSHD", 3, 20, 33, Bshd, 1},
      {"BHSD", 3, 20, 33, Bhsd, 1},
      {"BHSD, one sequence", 1, 9, 9, Bhsd, 1},
      {"SBHD", 3, 20, 33, Sbhd, 3},
      {"slots", 2, 20, 33, Slots, 1},
      {"odd", 2, 20, 33, Odd, 2},
      {"one query row", 4, 1, 33, Sbhd, 4},
      {"one row of each", 4, 1, 1, Sbhd, 1},
      {"no keys", 2, 7, 0, Bshd, 1},
      {"no queries", 2, 0, 7, Sbhd, 2},
      {"no sequences", 0, 5, 5, Bshd, 0},
  };
  for (const DenseCase& c : cases) {
    for (const bool causal : {false, true}) {
      const Options options = OptionsOf(4, 2, kDim, causal);
      std::vector<float> q = RandomFloats(20000, 1);
      std::vector<float> k = RandomFloats(20000, 2);
      std::vector<float> v = RandomFloats(20000, 3);
      std::vector<float> o(20000, kCanary);
      const auto tensor = [&c](std::vector<float>& buffer, int64_t rows, int64_t heads) {
        const std::array<int64_t, 3> s = c.strides(c.batch, rows, heads);
        return Tensor{&buffer, 7, s[1], s[2], s[0]};
      };
      const Qkvo t = {.q = tensor(q, c.q_rows, 4),
                      .k = tensor(k, c.kv_rows, 2),
                      .v = tensor(v, c.kv_rows, 2),
                      .o = tensor(o, c.q_rows, 4)};
      std::vector<NaiveSequence> naive(c.batch);
      for (int32_t b = 0; b < c.batch; ++b) {
        for (int32_t row = 0; row < c.q_rows; ++row) t.AddQuery(naive[b], row, b);
        for (int32_t row = 0; row < c.kv_rows; ++row) t.AddKey(naive[b], row, b);
      }
      const Result<Batch> batch = FromDense({.q = t.q.Dense(),
                                             .o = t.o.Dense(),
                                             .k = t.k.Dense(),
                                             .v = t.v.Dense(),
                                             .batch = c.batch,
                                             .q_rows = c.q_rows,
                                             .kv_rows = c.kv_rows},
                                            options);
      Check(options, batch, naive, {&o}, c.name);
      EXPECT_EQ(batch->tensors.size(), c.sets) << c.name;
    }
  }
}

TEST(AttentionAdapters, DenseWithKeysThatAllSequencesShare) {
  const Options options = OptionsOf(2, 2, kDim);
  Fused fused(options, 40, 4);
  fused.SetBatch(10);
  fused.tensors.k.batch_stride = 0;
  fused.tensors.v.batch_stride = 0;
  std::vector<NaiveSequence> naive(4);
  for (int32_t b = 0; b < 4; ++b) {
    for (int32_t row = 0; row < 10; ++row) {
      fused.tensors.AddQuery(naive[b], row, b);
      fused.tensors.AddKey(naive[b], row, 0);
    }
  }
  const Result<Batch> batch = FromDense(fused.AsDense(4, 10), options);
  Check(options, batch, naive, {&fused.out}, "shared keys");
  ASSERT_EQ(batch->tensors.size(), 1u);
  EXPECT_EQ(batch->tensors[0].q_rows, 40);
  EXPECT_EQ(batch->tensors[0].kv_rows, 10);
}

TEST(AttentionAdapters, DenseErrors) {
  const Options options = OptionsOf(2, 2, 8);
  std::vector<float> data(4096);
  const DenseView view = {{data.data(), 16}, 160};
  const Dense good = {
      .q = view, .o = view, .k = view, .v = view, .batch = 2, .q_rows = 10, .kv_rows = 10};
  const std::string op = "attention from dense tensors: ";
  EXPECT_EQ(ErrorOf(FromDense(good, options)), "");
  Dense bad = good;
  bad.batch = -1;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)), op + "batch: got -1, wanted 0 or more");
  bad = good;
  bad.kv_rows = -3;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)), op + "kv_rows: got -3, wanted 0 or more");
  bad = good;
  bad.v.rows.data = nullptr;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)), op + "v: got null, wanted 10 rows");
  bad = good;
  bad.o.batch_stride = 159;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)),
            op + "o: got sequences 159 elements apart, wanted at least 160, so that outputs do not "
                 "overlap");
  bad = good;
  bad.k.batch_stride = -160;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)),
            op + "k: got sequences -160 elements apart, wanted 0 or more");
  bad = good;
  bad.batch = 1 << 27;
  bad.q_rows = 100;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)),
            op + "batch: got 13421772800 query rows, wanted at most 2^31 - 1");
  bad.batch = 1 << 30;
  bad.q_rows = bad.kv_rows = 0;
  EXPECT_EQ(ErrorOf(FromDense(bad, options)), op + "batch: got 1073741824, wanted at most 2^27");
  Options heads = options;
  heads.kv_heads = 3;
  EXPECT_EQ(ErrorOf(FromDense(good, heads)),
            op + "kv_heads: got 3, wanted a divisor of 2 query heads");
}

// Packed -----------------------------------------------------------------------------------------

void CheckPacked(const Options& options, const std::vector<int32_t>& cu_q,
                 const std::vector<int32_t>& cu_k, std::array<int32_t, 2> longest = {}) {
  const std::string what = "packed " + testing::PrintToString(cu_q).substr(0, 80) +
                           testing::PrintToString(cu_k).substr(0, 80);
  Fused fused(options, std::max(cu_q.back(), cu_k.back()), 5);
  std::vector<NaiveSequence> naive(cu_q.size() - 1);
  for (size_t b = 0; b < naive.size(); ++b) {
    for (int32_t row = cu_q[b]; row < cu_q[b + 1]; ++row) fused.tensors.AddQuery(naive[b], row);
    for (int32_t row = cu_k[b]; row < cu_k[b + 1]; ++row) fused.tensors.AddKey(naive[b], row);
  }
  Packed packed = fused.AsPacked(cu_q.back(), cu_q, cu_k);
  packed.total_k = cu_k.back();
  packed.max_seqlen_q = longest[0];
  packed.max_seqlen_k = longest[1];
  Check(options, FromPacked(packed, options), naive, {&fused.out}, what);
}

TEST(AttentionAdapters, Packed) {
  CheckPacked(OptionsOf(2, 1, kDim), {0, 5, 5, 40, 41}, {0, 30, 31, 31, 60});
  CheckPacked(OptionsOf(2, 1, kDim), {0}, {0});
  CheckPacked(OptionsOf(2, 1, kDim), {0, 0}, {0, 0});
  // Tails longer than the rows before them, with and without the caller's belief.
  for (const auto& [used, tail] : {std::pair{3, 61}, {1, 127}, {64, 64}}) {
    const int32_t longest = std::max(used, tail);
    CheckPacked(OptionsOf(1, 1, kDim), {0, used, used + tail}, {0, used, used + tail});
    CheckPacked(OptionsOf(1, 1, kDim), {0, used, used + tail}, {0, used, used + tail},
                {longest, longest});
  }
}

TEST(AttentionAdapters, PackedWithEmptySequences) {
  for (const int32_t longest : {0, 1, 2}) {
    CheckPacked(OptionsOf(9, 3, 64, true), {0, 1, 1, 2}, {0, 3, 3, 8},
                {longest, longest == 0 ? 0 : 5});
    CheckPacked(OptionsOf(21, 7, 120, true), {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}, {longest, longest});
  }
  // Queries or keys alone; sequence 1 of the second has one key and nobody who asks.
  CheckPacked(OptionsOf(1, 1, 16), {0, 0, 121, 205, 205}, {0, 254, 428, 512, 819});
  CheckPacked(OptionsOf(1, 1, 16), {0, 254, 428, 512, 819}, {0, 0, 121, 205, 205});
  CheckPacked(OptionsOf(1, 1, 16), {0, 0, 0, 1023}, {0, 0, 1, 2046});
  CheckPacked(OptionsOf(1, 1, 4), {0, 0, 1208, 2048, 2048}, {0, 2538, 4280, 5120, 8192});
  // Tiles that would reach into the next sequence.
  CheckPacked(OptionsOf(1, 1, 4), {0, 1274, 2568, 3915, 5194, 6498, 7839, 8192},
              {0, 1274, 2568, 3915, 5194, 6498, 7839, 8192});
}

TEST(AttentionAdapters, PackedWith65536Sequences) {
  std::vector<int32_t> bounds = {0};
  for (int i = 0; i < 65536; ++i) {
    const bool special = i == 0 || i == 32767 || i >= 65534;
    bounds.push_back(bounds.back() + (special ? 40 + i % 3 : i % 2));
  }
  CheckPacked(OptionsOf(2, 1, 4), bounds, bounds);
}

TEST(AttentionAdapters, PackedErrors) {
  const Options options = OptionsOf(2, 2, 8);
  Fused fused(options, 64, 6);
  const std::string op = "attention from packed tensors: ";
  const std::vector<int32_t> good = {0, 10, 30, 64};
  // Both for queries and for keys.
  const auto expect = [&](const std::vector<int32_t>& bad, const std::string& index,
                          const std::string& got, const std::string& wanted) {
    for (const std::string name : {"cu_seqlens_q", "cu_seqlens_k"}) {
      const bool q = name == "cu_seqlens_q";
      std::string want = wanted;
      for (size_t at = 0; (at = want.find('$', at)) != std::string::npos;) {
        want.replace(at, 1, q ? "q" : "k");
      }
      EXPECT_EQ(ErrorOf(FromPacked(fused.AsPacked(64, q ? bad : good, q ? good : bad), options)),
                op + name + index + ": got " + got + ", wanted " + want);
    }
  };
  expect({1, 10, 30, 64}, "[0]", "1", "0");
  expect({-1, 10, 30, 64}, "[0]", "-1", "0");
  expect({0, 10, 30, 63}, "[3]", "63", "total_$, 64");
  expect({0, 30, 10, 64}, "[2]", "10", "at least cu_seqlens_$[1], 30");
  expect({0, -1, 10, 64}, "[1]", "-1", "at least cu_seqlens_$[0], 0");
  expect({0, 10, 65, 64}, "[2]", "65", "at most total_$, 64");
  expect({0, 10, 30, std::numeric_limits<int32_t>::max()}, "[3]", "2147483647",
         "at most total_$, 64");

  const auto error = [&](auto change) {
    Packed packed = fused.AsPacked(64, good, good);
    change(packed);
    return ErrorOf(FromPacked(packed, options));
  };
  EXPECT_EQ(error([](Packed& p) { p.cu_seqlens_q = {}; }),
            op + "cu_seqlens_k: got 4 bounds, wanted as many as cu_seqlens_q, 0");
  EXPECT_EQ(error([](Packed& p) { p.cu_seqlens_q = p.cu_seqlens_k = {}; }),
            op + "cu_seqlens_q: got no bounds, wanted at least 1, a zero");
  EXPECT_EQ(error([](Packed& p) { p.max_seqlen_q = 33; }),
            op + "max_seqlen_q: got 33, wanted at least 34, the length of sequence 2");
  EXPECT_EQ(error([](Packed& p) { p.max_seqlen_k = 19; }),
            op + "max_seqlen_k: got 19, wanted at least 20, the length of sequence 1");
  EXPECT_EQ(error([](Packed& p) { p.max_seqlen_q = -1; }),
            op + "max_seqlen_q: got -1, wanted 0 or more");
  EXPECT_EQ(error([](Packed& p) { p.max_seqlen_q = p.max_seqlen_k = 34; }), "");
  EXPECT_EQ(error([](Packed& p) { p.total_q = -64; }), op + "total_q: got -64, wanted 0 or more");
  EXPECT_EQ(error([](Packed& p) { p.k.data = nullptr; }), op + "k: got null, wanted 64 rows");
  EXPECT_EQ(error([](Packed& p) { p.o.row_stride = 8; }),
            op + "o: got rows 8 elements apart, wanted at least 16, so that outputs do not "
                 "overlap");
  ExpectCanaries(fused.out, "packed errors");
}

// Trailing padding -------------------------------------------------------------------------------

TEST(AttentionAdapters, TrailingPadding) {
  const Options options = OptionsOf(2, 1, kDim);
  for (const int32_t used : {0, 1, 50, 64}) {
    Fused fused(options, 64, 7);
    // What padding holds must not matter.
    for (int64_t row = used; row < 64; ++row) {
      std::fill_n(fused.in.begin() + row * fused.tensors.q.row_stride, fused.tensors.q.row_stride,
                  std::numeric_limits<float>::quiet_NaN());
    }
    std::vector<NaiveSequence> naive(2);
    for (int32_t row = 0; row < used; ++row) fused.tensors.AddRow(naive[0], row);
    for (int32_t row = used; row < 64; ++row) fused.tensors.AddQuery(naive[1], row);
    const TrailingPadding padded = {.q = fused.tensors.q.View(),
                                    .k = fused.tensors.k.View(),
                                    .v = fused.tensors.v.View(),
                                    .o = fused.tensors.o.View(),
                                    .used = used,
                                    .total = 64};
    Check(options, FromTrailingPadding(padded, options), naive, {&fused.out},
          std::to_string(used) + " of 64 rows");
  }
  const std::string op = "attention from rows with trailing padding: ";
  EXPECT_EQ(ErrorOf(FromTrailingPadding({.used = 0, .total = 0}, options)), "");
  EXPECT_EQ(ErrorOf(FromTrailingPadding({.used = 5, .total = 4}, options)),
            op + "used: got 5, wanted 0 to total, 4");
  EXPECT_EQ(ErrorOf(FromTrailingPadding({.used = -1, .total = 4}, options)),
            op + "used: got -1, wanted 0 to total, 4");
  EXPECT_EQ(ErrorOf(FromTrailingPadding({.used = 0, .total = -4}, options)),
            op + "total: got -4, wanted 0 or more");
  EXPECT_EQ(ErrorOf(FromTrailingPadding({.used = 4, .total = 4}, options)),
            op + "q: got null, wanted 4 rows");
}

}  // namespace
}  // namespace segue::attention
