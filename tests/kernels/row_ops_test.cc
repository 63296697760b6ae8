// The vectorised row-wise operations give the references' bits for every width and rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/reference.h"
#include "kernels/test_support.h"

namespace segue::kernels {
namespace {

constexpr Rounding kRoundings[] = {Rounding::kNone, Rounding::kBF16, Rounding::kBF16Once};
constexpr int64_t kWidths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 31, 33, 48, 192, 200};
constexpr int64_t kRows = 5;

// `run` fills and returns an output, padding included.
void ExpectReferenceBits(const std::string& what,
                         const std::function<std::vector<float>(const Context&)>& run) {
  ThreadPool one(1);
  ThreadPool three(3);
  const std::vector<float> want = run({.stream = Stream::Cpu(one), .reference_only = true});
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    for (ThreadPool* pool : {&one, &three}) {
      EXPECT_TRUE(SameBits(run({.stream = Stream::Cpu(*pool), .widest_isa = isa}), want)) << what;
    }
  }
}

void ExpectOk(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().Message());
}

class RowOps : public testing::TestWithParam<Rounding> {};

TEST_P(RowOps, Activations) {
  for (const int64_t cols : kWidths) {
    for (const auto activation : {Activation::kSilu, Activation::kGeluTanh}) {
      ExpectReferenceBits("activate " + std::to_string(cols), [&](const Context& context) {
        Matrix x = RandomMatrix(kRows, cols, 3, 1);
        x.data[0] = 95.0f;
        ExpectOk(Activate(
            {.x = x.View(), .y = x.View(), .activation = activation, .rounding = GetParam()},
            context));
        return x.data;
      });
    }
    ExpectReferenceBits("silu_mul " + std::to_string(cols), [&](const Context& context) {
      Matrix gate = RandomMatrix(kRows, cols, 3, 1);
      Matrix up = RandomMatrix(kRows, cols, 1, 2);
      Matrix y = RandomMatrix(kRows, cols, 2, 3);
      ExpectOk(SiluMul({gate.View(), up.View(), y.View(), GetParam()}, context));
      return y.data;
    });
  }
}

TEST_P(RowOps, Residuals) {
  Matrix table = RandomMatrix(3, 700, 0, 9);
  const std::vector<int32_t> index = {2, 0, 1, 1, 2};
  for (const int64_t cols : kWidths) {
    ExpectReferenceBits("add " + std::to_string(cols), [&](const Context& context) {
      Matrix a = RandomMatrix(kRows, cols, 3, 1);
      Matrix b = RandomMatrix(kRows, cols, 0, 2);
      ExpectOk(Add({a.View(), b.View(), a.View(), GetParam()}, context));
      return a.data;
    });
    ExpectReferenceBits("gate_residual " + std::to_string(cols), [&](const Context& context) {
      Matrix h = RandomMatrix(kRows, cols, 3, 1);
      Matrix y = RandomMatrix(kRows, cols, 0, 2);
      const RowTable gate = {
          .data = table.data.data() + 7, .rows = 3, .stride = 700, .index = index.data()};
      ExpectOk(GateResidual({y.View(), gate, h.View(), GetParam()}, context));
      return h.data;
    });
  }
}

TEST_P(RowOps, Norms) {
  Matrix table = RandomMatrix(3, 700, 0, 9);
  const std::vector<int32_t> index = {2, 0, 1, 1, 2};
  for (const int64_t cols : kWidths) {
    for (const bool modulated : {false, true}) {
      ExpectReferenceBits("layer_norm " + std::to_string(cols), [&](const Context& context) {
        Matrix x = RandomMatrix(kRows, cols, 3, 1);
        LayerNormParams params = {.x = x.View(), .y = x.View(), .rounding = GetParam()};
        if (modulated) {
          params.scale = {
              .data = table.data.data(), .rows = 3, .stride = 700, .index = index.data()};
          params.shift = params.scale;
          params.shift.data = table.data.data() + 300;
        }
        ExpectOk(LayerNorm(params, context));
        return x.data;
      });
    }
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Weight weight = RandomWeight(dtype, {cols}, 4);
      ExpectReferenceBits("rms_norm " + std::to_string(cols), [&](const Context& context) {
        Matrix x = RandomMatrix(kRows, cols, 3, 1);
        Matrix y = RandomMatrix(kRows, cols, 2, 1);
        ExpectOk(
            RmsNorm({.x = x.View(), .weight = weight.view, .y = y.View(), .rounding = GetParam()},
                    context));
        return y.data;
      });
      ExpectReferenceBits("channel_norm " + std::to_string(cols), [&](const Context& context) {
        Matrix x = RandomMatrix(kRows, cols, 3, 1);
        for (int64_t i = 0; i < cols; ++i) x.data[i] = 0.0f;
        ExpectOk(ChannelNorm({.x = x.View(),
                              .gamma = weight.view,
                              .y = x.View(),
                              .silu = dtype != DType::kF16,
                              .rounding = GetParam()},
                             context));
        return x.data;
      });
    }
  }
}

TEST_P(RowOps, Rope) {
  const std::vector<int32_t> index = {3, 0, 6, 3, 1};
  for (const int32_t dim : {2, 4, 6, 8, 14, 16, 18, 32, 34, 64, 128}) {
    const Weight weight = RandomWeight(DType::kBF16, {dim}, 4);
    Matrix cos = RandomMatrix(7, dim / 2, 0, 5);
    Matrix sin = RandomMatrix(7, dim / 2, 0, 6);
    RopeTable rope = {.cos = cos.data.data(), .sin = sin.data.data(), .positions = 7};
    for (const bool indexed : {false, true}) {
      rope.index = indexed ? index.data() : nullptr;
      ExpectReferenceBits("rope_half " + std::to_string(dim), [&](const Context& context) {
        Matrix x = RandomMatrix(kRows, 3 * dim, 3, 1);
        ExpectOk(RopeHalf({x.View(), dim, rope, GetParam()}, context));
        return x.data;
      });
      for (const bool normed : {false, true}) {
        ExpectReferenceBits("qk_norm_rope " + std::to_string(dim), [&](const Context& context) {
          Matrix x = RandomMatrix(kRows, 3 * dim, 3, 1);
          ExpectOk(QkNormRope({.x = x.View(),
                               .head_dim = dim,
                               .weight = normed ? weight.view : WeightView{},
                               .rope = rope,
                               .rounding = GetParam()},
                              context));
          return x.data;
        });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Roundings, RowOps, testing::ValuesIn(kRoundings));

TEST(RowOpsOnce, ManyRowsAreSharedByThreads) {
  ExpectReferenceBits("layer_norm of 1000 rows", [](const Context& context) {
    Matrix x = RandomMatrix(1000, 192, 0, 1);
    ExpectOk(LayerNorm({.x = x.View(), .y = x.View()}, context));
    return x.data;
  });
}

TEST(RowOpsOnce, BF16KeepsNaNAndInfinity) {
  ExpectReferenceBits("add", [](const Context& context) {
    Matrix a = RandomMatrix(1, 40, 0, 1);
    Matrix b = RandomMatrix(1, 40, 0, 2);
    a.data[3] = NAN;
    a.data[20] = INFINITY;
    a.data[21] = 3.4e38f;  // rounds up to infinity
    b.data[21] = 0.0f;
    ExpectOk(Add({a.View(), b.View(), a.View(), Rounding::kBF16}, context));
    EXPECT_TRUE(std::isnan(a.data[3]));
    EXPECT_TRUE(std::isinf(a.data[20]));
    EXPECT_TRUE(std::isinf(a.data[21]));
    return a.data;
  });
}

TEST(RowOpsOnce, FiniteIgnoresPaddingAndFindsEachPosition) {
  ThreadPool pool(1);
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const Context context = {.stream = Stream::Cpu(pool), .widest_isa = isa};
    for (const int64_t cols : kWidths) {
      Matrix x = RandomMatrix(2, cols, 3, 1);  // NaN between the rows
      bool finite = false;
      ExpectOk(Finite({x.View(), &finite}, context));
      EXPECT_TRUE(finite);
      for (int64_t i = 0; i < cols; ++i) {
        Matrix bad = x;
        bad.data[x.stride + i] = i % 2 == 0 ? NAN : -INFINITY;
        ExpectOk(Finite({bad.View(), &finite}, context));
        EXPECT_FALSE(finite) << cols << " " << i;
      }
    }
  }
}

TEST(RowOpsOnce, TheLogSaysWhyWiderCodeDidNotRun) {
  ThreadPool pool(1);
  KernelLog log;
  Matrix a = RandomMatrix(1, 8, 0, 1);
  const AddParams params = {a.View(), a.View(), a.View()};
  ExpectOk(Add(params, {.stream = Stream::Cpu(pool), .log = &log, .reference_only = true}));
  ExpectOk(Add(params, {.stream = Stream::Cpu(pool), .log = &log, .reference_only = true}));
  const auto entries = log.Snapshot().at("add");
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].kernel, "ref");
  EXPECT_EQ(entries[0].calls, 2);
  EXPECT_EQ(entries[0].passed_over,
            (std::vector<std::string>{"avx512: only references were asked for",
                                      "avx2: only references were asked for"}));
}

TEST(RowOpsOnce, RecordedCallsCountAgain) {
  Matrix a = RandomMatrix(1, 8, 0, 1);
  ThreadPool pool(1);
  KernelLog log;
  const Context context = {.stream = Stream::Cpu(pool), .log = &log, .reference_only = true};
  const AddParams add = {.a = a.View(), .b = a.View(), .y = a.View()};
  ExpectOk(Add(add, context));
  const auto before = log.Tallies();
  ExpectOk(Add(add, context));
  ExpectOk(Add(add, context));
  const auto recorded = log.Since(before);
  ASSERT_EQ(recorded.size(), 1u);
  EXPECT_EQ(recorded[0].calls, 2);
  log.Repeat(recorded);
  log.Repeat(recorded);
  EXPECT_EQ(log.Snapshot().at("add")[0].calls, 7);
  EXPECT_TRUE(log.Since(log.Tallies()).empty());
}

TEST(RowOpsOnce, WhatNoKernelServesIsRefusedWithEveryReason) {
  Matrix a = RandomMatrix(4, 260, 0, 1);
  const auto bf16 = [&](int64_t rows, int64_t cols) {  // a GPU's activation type
    return ContiguousMatrix(a.data.data(), DType::kBF16, rows, cols);
  };
  // More channels than a GPU takes statistics of.
  const Status status = UnpackLatents({.tokens = bf16(1, 260),
                                       .grid_height = 1,
                                       .grid_width = 1,
                                       .mean = a.data.data(),
                                       .std = a.data.data(),
                                       .grid = bf16(4, 65)},
                                      {.stream = Stream::Cuda(nullptr)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  const std::string message = status.error().Message();
  EXPECT_NE(message.find("ref: works on host memory only"), std::string::npos) << message;
  EXPECT_NE(message.find("cuda_ref: th"), std::string::npos) << message;
}

}  // namespace
}  // namespace segue::kernels
