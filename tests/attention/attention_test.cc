// The CPU back end against the double-precision reference, and the promises about independence.
#include "attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace segue::attention {
namespace {

using kernels::Context;
using kernels::CpuIsa;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kCanary = -1.2345e30f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Lengths {
  int64_t q, kv;
};

struct Heads {
  int32_t q = 2, kv = 2, dim = 32;
  bool causal = false;
};

// Sequences with their own memory. Every row is followed by `padding` poisoned elements, every
// output by canaries.
class Batch {
 public:
  explicit Batch(Heads heads) : heads_(heads) {}

  void Add(const std::vector<Lengths>& lengths, uint32_t seed, float scale = 1.0f) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    Sequence sequence;
    for (const Lengths& l : lengths) {
      Segment segment = {.q_rows = l.q, .kv_rows = l.kv};
      segment.q = NewRows(l.q, heads_.q, [&] { return scale * normal(engine); });
      segment.k = NewRows(l.kv, heads_.kv, [&] { return normal(engine); });
      segment.v = NewRows(l.kv, heads_.kv, [&] { return normal(engine); });
      segment.o = NewRows(l.q, heads_.q, [] { return kCanary; });
      outputs_.push_back(tensors_.size() - 1);
      sequence.segments.push_back(segment);
    }
    sequences_.push_back(sequence);
  }

  Params MakeParams(const std::string& backend) {
    return {.options = {.q_heads = heads_.q,
                        .kv_heads = heads_.kv,
                        .head_dim = heads_.dim,
                        .softmax_scale = 1.0f / std::sqrt(static_cast<float>(heads_.dim)),
                        .causal = heads_.causal},
            .sequences = sequences_,
            .backend = backend};
  }

  struct Output {
    std::vector<std::vector<float>> rows;  // of each segment, padding included
    std::vector<float> lse;
  };

  Output Run(const std::string& backend, const Context& context,
             kernels::Rounding rounding = kernels::Rounding::kNone) {
    int64_t total = 0;
    for (const Sequence& sequence : sequences_) {
      for (const Segment& segment : sequence.segments) total += segment.q_rows;
    }
    for (const size_t output : outputs_) {
      std::fill(tensors_[output].begin(), tensors_[output].end(), kCanary);
    }
    Output output;
    output.lse.assign(total * heads_.q, kCanary);
    Params params = MakeParams(backend);
    params.lse = output.lse.data();
    params.rounding = rounding;
    const Status status = Attention(params, context);
    EXPECT_TRUE(status.ok()) << status.error().Message();
    for (const size_t i : outputs_) output.rows.push_back(tensors_[i]);
    return output;
  }

  Heads heads() const { return heads_; }
  std::vector<Sequence>& sequences() { return sequences_; }
  int64_t Stride(int32_t heads) const { return int64_t{heads} * heads_.dim + kPadding; }
  static constexpr int64_t kPadding = 5;

 private:
  template <typename Next>
  RowsView NewRows(int64_t rows, int32_t heads, Next next) {
    const int64_t stride = Stride(heads);
    std::vector<float> data(rows * stride, kNaN);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < stride - kPadding; ++i) data[row * stride + i] = next();
    }
    tensors_.push_back(std::move(data));
    return {.data = tensors_.back().data(), .row_stride = stride};
  }

  Heads heads_;
  std::vector<std::vector<float>> tensors_;
  std::vector<size_t> outputs_;
  std::vector<Sequence> sequences_;
};

// |a - b| at most `tolerance` (values are means of standard normals), padding untouched.
void ExpectClose(const Batch& batch, const Batch::Output& got, const Batch::Output& want,
                 float tolerance, const std::string& what) {
  const int64_t stride = batch.Stride(batch.heads().q);
  const int64_t width = stride - Batch::kPadding;
  float worst = 0.0f;
  for (size_t s = 0; s < want.rows.size(); ++s) {
    for (size_t i = 0; i < want.rows[s].size(); ++i) {
      const float a = got.rows[s][i];
      const float b = want.rows[s][i];
      if (static_cast<int64_t>(i) % stride >= width) {
        ASSERT_EQ(a, kCanary) << what;
        continue;
      }
      ASSERT_TRUE(std::isfinite(a)) << what << " segment " << s << " element " << i;
      worst = std::max(worst, std::abs(a - b));
    }
  }
  EXPECT_LE(worst, tolerance) << what;
  for (size_t i = 0; i < want.lse.size(); ++i) {
    if (want.lse[i] == -kInfinity) {
      EXPECT_EQ(got.lse[i], -kInfinity) << what;
    } else {
      EXPECT_NEAR(got.lse[i], want.lse[i], 2e-6f * (1.0f + std::abs(want.lse[i]))) << what;
    }
  }
}

bool SameBits(const Batch::Output& a, const Batch::Output& b) {
  const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    if (x.size() != y.size()) return false;
    return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  if (a.rows.size() != b.rows.size() || !same(a.lse, b.lse)) return false;
  for (size_t i = 0; i < a.rows.size(); ++i) {
    if (!same(a.rows[i], b.rows[i])) return false;
  }
  return true;
}

class CpuAttention : public testing::Test {
 protected:
  // Runs on both instruction sets and with several threads: the same bits, close to the reference.
  Batch::Output Check(Batch& batch, const std::string& what, float tolerance = 2e-6f) {
    const Batch::Output want = batch.Run("ref", {.stream = Stream::Cpu(one_)});
    const Batch::Output got = batch.Run("cpu", {.stream = Stream::Cpu(one_)});
    ExpectClose(batch, got, want, tolerance, what);
    for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
      const Batch::Output again =
          batch.Run("cpu", {.stream = Stream::Cpu(three_), .widest_isa = isa});
      EXPECT_TRUE(SameBits(again, got)) << what;
    }
    return got;
  }

  ThreadPool one_{1};
  ThreadPool three_{3};
};

TEST_F(CpuAttention, LengthsAroundEveryTileEdge) {
  for (const int64_t q : {1, 23, 24, 25, 47, 48, 49, 191, 192, 193}) {
    for (const int64_t kv : {1, 7, 8, 9, 127, 128, 129, 257}) {
      Batch batch({.q = 1, .kv = 1, .dim = 16});
      batch.Add({{q, kv}}, 11);
      Check(batch, std::to_string(q) + " queries, " + std::to_string(kv) + " keys");
    }
  }
}

TEST_F(CpuAttention, HeadDimensions) {
  for (const int32_t dim : {1, 2, 3, 7, 8, 12, 20, 64, 96, 128, 257, 384}) {
    Batch batch({.q = 2, .kv = 2, .dim = dim});
    batch.Add({{30, 140}}, 5);
    Check(batch, "head_dim " + std::to_string(dim));
  }
}

TEST_F(CpuAttention, ManySegmentsSomeWithoutQueriesOrKeys) {
  Batch batch({.q = 4, .kv = 2, .dim = 24});
  batch.Add({{3, 3}, {0, 130}, {60, 0}, {0, 0}, {1, 1}, {50, 70}}, 1);
  batch.Add({{5, 0}, {2, 0}}, 2);  // sees no key
  batch.Add({{0, 9}}, 3);          // asks nothing
  batch.Add({}, 4);
  batch.Add({{200, 200}}, 5);
  const Batch::Output got = Check(batch, "segments");
  for (const size_t segment : {6, 7}) {
    const int64_t stride = batch.Stride(4);
    for (size_t i = 0; i < got.rows[segment].size(); ++i) {
      if (static_cast<int64_t>(i) % stride < stride - Batch::kPadding) {
        EXPECT_EQ(got.rows[segment][i], 0.0f);
      }
    }
  }
}

TEST_F(CpuAttention, CausalIsAlignedBottomRight) {
  for (const Lengths l :
       {Lengths{1, 1}, {5, 5}, {130, 130}, {300, 300}, {7, 140}, {140, 7}, {200, 129}, {20, 0}}) {
    Batch batch({.q = 2, .kv = 1, .dim = 16, .causal = true});
    batch.Add({{l.q / 2, l.kv / 3}, {l.q - l.q / 2, l.kv - l.kv / 3}}, 9);
    Check(batch, "causal " + std::to_string(l.q) + " " + std::to_string(l.kv));
  }
}

TEST_F(CpuAttention, LargeAndVeryNegativeLogits) {
  Batch large({.q = 2, .kv = 2, .dim = 64});
  large.Add({{70, 300}}, 21, 1000.0f);
  // Logits near 2000 carry an absolute rounding error near 1e-4.
  Check(large, "queries scaled by 1000", 2e-3f);

  // All logits about -120: whatever leaks in with a score of 0 would take everything.
  for (const int64_t kv : {1, 64, 127, 129, 191}) {
    Batch negative({.q = 1, .kv = 1, .dim = 16});
    negative.Add({{30, kv}}, 22);
    Segment& segment = negative.sequences()[0].segments[0];
    for (int64_t row = 0; row < 30; ++row) {
      static_cast<float*>(segment.q.data)[row * segment.q.row_stride] = -480.0f;
    }
    for (int64_t row = 0; row < kv; ++row) {
      static_cast<float*>(segment.k.data)[row * segment.k.row_stride] = 1.0f;
    }
    Check(negative, "negative logits", 2e-5f);
  }
}

TEST_F(CpuAttention, ASequenceDoesNotDependOnItsCompany) {
  const Heads heads = {.q = 2, .kv = 2, .dim = 32};
  Batch alone(heads);
  alone.Add({{14, 14}, {150, 150}}, 31);
  const Batch::Output want = alone.Run("cpu", {.stream = Stream::Cpu(one_)});
  Batch batch(heads);
  batch.Add({{90, 90}}, 32);
  batch.Add({{14, 14}, {150, 150}}, 31);
  batch.Add({{1, 400}}, 33);
  // Poisoned neighbours.
  for (const size_t neighbour : {0, 2}) {
    Segment& segment = batch.sequences()[neighbour].segments[0];
    for (const RowsView& view : {segment.k, segment.v}) {
      std::fill_n(static_cast<float*>(view.data), 3 * view.row_stride, kNaN);
    }
  }
  for (ThreadPool* pool : {&one_, &three_}) {
    const Batch::Output got = batch.Run("cpu", {.stream = Stream::Cpu(*pool)});
    for (const size_t segment : {0, 1}) {
      EXPECT_EQ(std::memcmp(got.rows[1 + segment].data(), want.rows[segment].data(),
                            want.rows[segment].size() * sizeof(float)),
                0);
    }
  }
}

TEST_F(CpuAttention, AQueryRowDoesNotDependOnItsNeighbours) {
  Batch batch({.q = 1, .kv = 1, .dim = 32});
  batch.Add({{100, 200}}, 41);
  const Context context = {.stream = Stream::Cpu(one_)};
  const Batch::Output all = batch.Run("cpu", context);
  Segment& segment = batch.sequences()[0].segments[0];
  // Only the last row, at another place of its tile.
  const int64_t stride = segment.q.row_stride;
  segment.q.data = static_cast<float*>(segment.q.data) + 99 * stride;
  segment.q_rows = 1;
  const Batch::Output one = batch.Run("cpu", context);
  EXPECT_EQ(std::memcmp(one.rows[0].data(), all.rows[0].data() + 99 * stride, 32 * sizeof(float)),
            0);
}

TEST_F(CpuAttention, ANaNInTheSequenceIsNotHidden) {
  Batch batch({.q = 1, .kv = 1, .dim = 16});
  batch.Add({{10, 200}}, 51);
  Segment& segment = batch.sequences()[0].segments[0];
  static_cast<float*>(segment.k.data)[150 * segment.k.row_stride] = kNaN;
  const Batch::Output got = batch.Run("cpu", {.stream = Stream::Cpu(one_)});
  for (int64_t row = 0; row < 10; ++row) EXPECT_TRUE(std::isnan(got.rows[0][row * 21]));
}

TEST_F(CpuAttention, BF16RoundsTheOutputOnly) {
  Batch batch({.q = 2, .kv = 2, .dim = 32});
  batch.Add({{50, 60}}, 61);
  const Context context = {.stream = Stream::Cpu(one_)};
  const Batch::Output exact = batch.Run("cpu", context);
  const Batch::Output rounded = batch.Run("cpu", context, kernels::Rounding::kBF16);
  for (size_t i = 0; i < exact.rows[0].size(); ++i) {
    const auto stride = static_cast<size_t>(batch.Stride(2));
    if (i % stride >= stride - Batch::kPadding) continue;
    EXPECT_EQ(rounded.rows[0][i], RoundToBF16(exact.rows[0][i]));
  }
}

TEST_F(CpuAttention, RefusesWhatItCannotDoAndSaysWhy) {
  Batch batch({.q = 1, .kv = 1, .dim = 8});
  batch.Add({{2, 2}}, 71);
  const Context context = {.stream = Stream::Cpu(one_)};
  Params params = batch.MakeParams("cpu");
  params.options.element_type = ElementType::kBFloat16;
  Status status = Attention(params, context);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(status.error().Message().find("cpu: float32 elements only"), std::string::npos);

  params = batch.MakeParams("");
  EXPECT_TRUE(Attention(params, context).ok());
  params.backend = "sm90";
  status = Attention(params, context);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(), "attention: backend: got sm90, wanted one of cpu, ref");

  params = batch.MakeParams("");
  params.options.kv_heads = 3;
  EXPECT_FALSE(Attention(params, context).ok());
  params = batch.MakeParams("");
  params.options.head_dim = 0;
  EXPECT_FALSE(Attention(params, context).ok());
  params = batch.MakeParams("");
  params.options.softmax_scale = kNaN;
  EXPECT_FALSE(Attention(params, context).ok());
  batch.sequences()[0].segments[0].o.row_stride = 7;
  status = Attention(batch.MakeParams(""), context);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(),
            "attention: o: got rows 7 elements apart, wanted at least 8, so that outputs do not "
            "overlap");
}

TEST_F(CpuAttention, TheLogNamesTheBackEnd) {
  Batch batch({.q = 1, .kv = 1, .dim = 8});
  batch.Add({{2, 2}}, 81);
  kernels::KernelLog log;
  const Context context = {.stream = Stream::Cpu(one_), .log = &log, .reference_only = true};
  ASSERT_TRUE(Attention(batch.MakeParams(""), context).ok());
  const auto entries = log.Snapshot();
  ASSERT_EQ(entries.at("attention").size(), 1u);
  EXPECT_EQ(entries.at("attention")[0].kernel, "ref");
  EXPECT_EQ(entries.at("attention")[0].passed_over,
            (std::vector<std::string>{"cpu: only references were asked for"}));
}

TEST_F(CpuAttention, KeepsToTheBackEndsThatTheModelAdmits) {
  Batch batch({.q = 1, .kv = 1, .dim = 8});
  batch.Add({{2, 2}}, 82);
  kernels::KernelLog log;
  const Context context = {.stream = Stream::Cpu(one_), .log = &log};
  constexpr std::string_view kAdmitted[] = {"ref"};
  Params params = batch.MakeParams("cpu");
  params.admitted = kAdmitted;
  const Status refused = Attention(params, context);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().got, "cpu");
  EXPECT_EQ(refused.error().wanted, "one that the model admits: ref");
  params.backend = "";
  ASSERT_TRUE(Attention(params, context).ok());
  const auto entries = log.Snapshot();
  ASSERT_EQ(entries.at("attention").size(), 1u);
  EXPECT_EQ(entries.at("attention")[0].kernel, "ref");
  EXPECT_EQ(entries.at("attention")[0].passed_over,
            (std::vector<std::string>{"cpu: the model does not admit it"}));
}

}  // namespace
}  // namespace segue::attention
