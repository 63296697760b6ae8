// The packed product gives the reference's bits for every instruction set, shape, dtype, number of
// threads and position of a row.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cpu/blocks.h"
#include "kernels/test_support.h"

namespace segue::kernels {
namespace {

struct Problem {
  int64_t rows, cols, depth;
  DType dtype = DType::kBF16;
  bool bias = true;
  bool accumulate = false;
  Activation activation = Activation::kNone;
  Rounding rounding = Rounding::kNone;
};

std::string Describe(const Problem& p) {
  return std::to_string(p.rows) + "x" + std::to_string(p.cols) + "x" + std::to_string(p.depth) +
         " " + DTypeName(p.dtype) + (p.accumulate ? " accumulate" : "") +
         (p.rounding == Rounding::kBF16 ? " bf16" : "");
}

// Matrices with poisoned row padding and a guarded output.
class Case {
 public:
  explicit Case(const Problem& p)
      : p_(p),
        x_(RandomMatrix(p.rows, p.depth, 3, 1)),
        weight_(RandomWeight(p.dtype, {p.cols, p.depth}, 2)),
        bias_(RandomWeight(p.dtype, {p.cols}, 3)),
        y_(RandomMatrix(p.rows, p.cols, 5, 4)) {}

  // The output's memory, padding included, after one run.
  std::vector<float> Run(const Context& context, int64_t row_begin, int64_t rows) const {
    Matrix y = y_;
    const Status status = Linear({.x = x_.View().Rows(row_begin, rows),
                                  .weight = weight_.view,
                                  .bias = p_.bias ? bias_.view : WeightView{},
                                  .y = y.View().Rows(row_begin, rows),
                                  .rounding = p_.rounding,
                                  .activation = p_.activation,
                                  .accumulate = p_.accumulate},
                                 context);
    EXPECT_TRUE(status.ok()) << status.error().Message();
    return y.data;
  }
  std::vector<float> Run(const Context& context) const { return Run(context, 0, p_.rows); }

 private:
  Problem p_;
  mutable Matrix x_;
  Weight weight_;
  Weight bias_;
  Matrix y_;
};

void ExpectReferenceBits(const Problem& p) {
  const Case c(p);
  ThreadPool one(1);
  ThreadPool three(3);
  const std::vector<float> want = c.Run({.stream = Stream::Cpu(one), .reference_only = true});
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    for (ThreadPool* pool : {&one, &three}) {
      const Context context = {.stream = Stream::Cpu(*pool), .widest_isa = isa};
      EXPECT_TRUE(SameBits(c.Run(context), want)) << Describe(p);
    }
  }
}

TEST(Linear, EveryRowCountGivesTheReferenceBits) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 20, 47, 64, 98, 128}) {
    ExpectReferenceBits({.rows = rows, .cols = 67, .depth = 300});
  }
  ExpectReferenceBits({.rows = 1000, .cols = 33, .depth = 70});
}

TEST(Linear, EveryDTypeAndOddEdgeGivesTheReferenceBits) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t cols : {1, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100}) {
      for (const int64_t depth : {1, 2, 7, 31, 33, 64, 255, 256, 257, 513}) {
        ExpectReferenceBits({.rows = 9, .cols = cols, .depth = depth, .dtype = dtype});
      }
    }
  }
}

TEST(Linear, EpiloguesGiveTheReferenceBits) {
  for (const Rounding rounding : {Rounding::kNone, Rounding::kBF16, Rounding::kBF16Once}) {
    for (const bool accumulate : {false, true}) {
      for (const auto activation : {Activation::kNone, Activation::kSilu, Activation::kGeluTanh}) {
        for (const bool bias : {false, true}) {
          ExpectReferenceBits({.rows = 17,
                               .cols = 43,
                               .depth = 520,
                               .bias = bias,
                               .accumulate = accumulate,
                               .activation = activation,
                               .rounding = rounding});
        }
      }
    }
  }
}

TEST(Linear, SeveralSpansOfPackedRowsGiveTheReferenceBits) {
  // 300 rows of 1100 exceed the AVX2 limit of packed rows, so the sum is taken in several spans.
  ExpectReferenceBits({.rows = 300, .cols = 20, .depth = 1100});
  ExpectReferenceBits({.rows = 300, .cols = 20, .depth = 1100, .accumulate = true});
}

TEST(Linear, ARowDoesNotDependOnItsCompany) {
  const Problem p = {.rows = 131, .cols = 96, .depth = 384};
  const Case c(p);
  ThreadPool pool(2);
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const Context context = {.stream = Stream::Cpu(pool), .widest_isa = isa};
    const std::vector<float> all = c.Run(context);
    for (const int64_t begin : {0, 1, 63, 130}) {
      const int64_t rows = begin == 63 ? 40 : 1;
      const std::vector<float> some = c.Run(context, begin, rows);
      const auto stride = static_cast<int64_t>(all.size()) / p.rows;
      EXPECT_EQ(std::memcmp(some.data() + begin * stride, all.data() + begin * stride,
                            rows * stride * sizeof(float)),
                0);
    }
  }
}

TEST(Linear, NothingButTheLastWeightIsReadBehindAnEdge) {
  // Guarded by the sanitizer build: the weights end exactly where their allocation ends.
  ThreadPool pool(1);
  for (const int64_t depth : {1, 9, 17, 40}) {
    std::vector<uint16_t> weights(3 * depth, 0x3f80);
    Matrix x = RandomMatrix(2, depth, 0, 7);
    Matrix y = RandomMatrix(2, 3, 0, 8);
    for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
      ASSERT_TRUE(
          Linear(
              {.x = x.View(), .weight = {weights.data(), DType::kBF16, {3, depth}}, .y = y.View()},
              {.stream = Stream::Cpu(pool), .widest_isa = isa})
              .ok());
    }
  }
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  ThreadPool pool(1);
  Matrix x = RandomMatrix(2, 4, 0, 1);
  Matrix y = RandomMatrix(2, 3, 0, 1);
  const Weight weight = RandomWeight(DType::kF32, {3, 5}, 1);
  const Status status =
      Linear({.x = x.View(), .weight = weight.view, .y = y.View()}, {.stream = Stream::Cpu(pool)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(), "linear: weight: got [3, 5], wanted [3, 4]");
}

TEST(Linear, RefusesAnEmptySum) {
  ThreadPool pool(1);
  std::vector<float> y(2);
  const float nothing = 0.0f;
  const Status status = Linear({.x = {.rows = 1},
                                .weight = {&nothing, DType::kF32, {2, 0}},
                                .y = ContiguousMatrix(y.data(), 1, 2)},
                               {.stream = Stream::Cpu(pool)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(), "linear: x: got no columns, wanted at least 1");
}

TEST(Blocks, CoverTheProductWithinTheLimits) {
  const cpu::TileLimits limits = {
      .tile_rows = 6, .tile_cols = 16, .packed_floats = 252 * 256, .most_cols = 512};
  for (const int64_t rows : {1, 6, 7, 100, 1024, 5000}) {
    for (const int64_t cols : {1, 16, 64, 192, 3072}) {
      for (const int64_t depth : {1, 192, 3072, 12288}) {
        for (const int threads : {1, 2, 16, 64}) {
          const cpu::ProductBlocks b = cpu::ChooseBlocks({rows, cols, depth}, limits, threads);
          EXPECT_GE(b.rows * b.row_tasks, rows);
          EXPECT_LT(b.rows * (b.row_tasks - 1), rows);
          EXPECT_GE(b.cols * b.col_tasks, cols);
          EXPECT_LT(b.cols * (b.col_tasks - 1), cols);
          EXPECT_EQ(b.rows % limits.tile_rows, 0);
          EXPECT_EQ(b.cols % limits.tile_cols, 0);
          EXPECT_TRUE(b.depth == depth || b.depth % kLinearBlockK == 0);
          EXPECT_LE(b.rows * b.depth, limits.packed_floats);
          EXPECT_LE(b.cols, limits.most_cols);
        }
      }
    }
  }
}

}  // namespace
}  // namespace segue::kernels
