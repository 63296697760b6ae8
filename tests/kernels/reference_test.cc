// The references against values worked out by hand or by a second formula in double precision.
#include "kernels/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/dtype.h"
#include "kernels/math.h"

namespace segue::kernels {
namespace {

class Reference : public testing::Test {
 protected:
  ThreadPool pool_{1};
  Context context_{.stream = Stream::Cpu(pool_), .reference_only = true};
};

MatrixView View(std::vector<float>& data, int64_t rows, int64_t cols) {
  return ContiguousMatrix(data.data(), rows, cols);
}

WeightView Weight(const std::vector<float>& data, Shape shape) {
  return {.data = data.data(), .dtype = DType::kF32, .shape = shape};
}

TEST(Math, ExpIsWithinTwoUlp) {
  for (float x = -86.0f; x < 88.5f; x += 0.0137f) {
    const double want = std::exp(static_cast<double>(x));
    EXPECT_NEAR(Exp<Scalar>(x), want, 1.2e-7 * want) << x;
    if (x <= 0.0f) {
      EXPECT_EQ(ExpOfNonPositive<Scalar>(x), Exp<Scalar>(x)) << x;
    }
  }
}

TEST(Math, ExpAtTheEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp<Scalar>(0.0f), 1.0f);
  EXPECT_EQ(ExpOfNonPositive<Scalar>(0.0f), 1.0f);
  EXPECT_EQ(Exp<Scalar>(-kInfinity), 0.0f);
  EXPECT_EQ(ExpOfNonPositive<Scalar>(-kInfinity), 0.0f);
  EXPECT_EQ(ExpOfNonPositive<Scalar>(-88.0f), 0.0f);
  EXPECT_EQ(Exp<Scalar>(kInfinity), kInfinity);
  EXPECT_EQ(Exp<Scalar>(89.0f), kInfinity);
  EXPECT_LT(Exp<Scalar>(88.72f), kInfinity);
  EXPECT_GT(Exp<Scalar>(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Exp<Scalar>(NAN)));
  EXPECT_TRUE(std::isnan(ExpOfNonPositive<Scalar>(NAN)));
}

TEST(Math, ActivationsMatchTheirFormulas) {
  for (double x = -12.0; x < 12.0; x += 0.0173) {
    const auto f = static_cast<float>(x);
    const double z = f;
    const double u = std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z);
    const double gelu = z / (1.0 + std::exp(-2.0 * u));
    const double silu = z / (1.0 + std::exp(-z));
    EXPECT_NEAR(GeluTanh<Scalar>(f), gelu, 1.5e-5 * std::abs(gelu) + 1e-37) << x;
    EXPECT_NEAR(Silu<Scalar>(f), silu, 3e-7 * std::abs(silu)) << x;
  }
}

TEST_F(Reference, LayerNormModulatesByRow) {
  std::vector<float> x = {1, 3, -2, 2};
  std::vector<float> y(4);
  const std::vector<float> table = {0.5f, 1, 10, 20, -1, 0, 30, 40};  // scale | shift, two rows
  const std::vector<int32_t> index = {1, 0};
  const LayerNormParams params = {
      .x = View(x, 2, 2),
      .y = View(y, 2, 2),
      .eps = 0.0f,
      .scale = {.data = table.data(), .rows = 2, .stride = 4, .index = index.data()},
      .shift = {.data = table.data() + 2, .rows = 2, .stride = 4, .index = index.data()}};
  ASSERT_TRUE(LayerNorm(params, context_).ok());
  EXPECT_EQ(y, (std::vector<float>{30, 41, 8.5f, 22}));
}

TEST_F(Reference, LayerNormRefusesAnIndexOutsideTheTable) {
  std::vector<float> x = {1, 3};
  const std::vector<float> table = {0, 0};
  const std::vector<int32_t> index = {1};
  const RowTable rows = {.data = table.data(), .rows = 1, .stride = 2, .index = index.data()};
  const Status status =
      LayerNorm({.x = View(x, 1, 2), .y = View(x, 1, 2), .scale = rows, .shift = rows}, context_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(), "layer_norm: scale: got 1 at position 0, wanted 0 to 0");
}

TEST_F(Reference, RmsNormRoundsBeforeTheWeight) {
  std::vector<float> x = {1, 2};
  std::vector<float> y(2);
  const std::vector<float> weight = {3, 1.0078125f};
  RmsNormParams params = {
      .x = View(x, 1, 2), .weight = Weight(weight, {2}), .y = View(y, 1, 2), .eps = 0.0f};
  ASSERT_TRUE(RmsNorm(params, context_).ok());
  EXPECT_NEAR(y[0], 3 / std::sqrt(2.5), 1e-6);
  params.rounding = Rounding::kBF16;
  ASSERT_TRUE(RmsNorm(params, context_).ok());
  const float rounded = RoundToBF16(static_cast<float>(2 / std::sqrt(2.5)));
  EXPECT_EQ(y[1], RoundToBF16(rounded * 1.0078125f));
}

TEST_F(Reference, RopeTurnsAdjacentPairsAndHalves) {
  std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> cos = {9, 9, 0, 1};
  const std::vector<float> sin = {9, 9, 1, 0};
  const std::vector<int32_t> position = {1};
  const RopeTable rope = {
      .cos = cos.data(), .sin = sin.data(), .positions = 2, .index = position.data()};
  ASSERT_TRUE(QkNormRope({.x = View(x, 1, 4), .head_dim = 4, .rope = rope}, context_).ok());
  EXPECT_EQ(x, (std::vector<float>{-2, 1, 3, 4}));
  x = {1, 2, 3, 4};
  ASSERT_TRUE(RopeHalf({.x = View(x, 1, 4), .head_dim = 4, .rope = rope}, context_).ok());
  EXPECT_EQ(x, (std::vector<float>{-3, 2, 1, 4}));
}

TEST_F(Reference, GuidanceKeepsTheConditionalNorm) {
  std::vector<float> cond = {3, 4, 0, 0};
  std::vector<float> negative = {1, 0, 0, 0};
  std::vector<float> y(4);
  ASSERT_TRUE(Guidance({.cond = View(cond, 2, 2),
                        .negative = View(negative, 2, 2),
                        .y = View(y, 2, 2),
                        .scale = 2.0f},
                       context_)
                  .ok());
  EXPECT_NEAR(y[0], 5 * 5 / std::sqrt(89.0), 1e-6);  // comb = (5, 8)
  EXPECT_NEAR(y[1], 8 * 5 / std::sqrt(89.0), 1e-6);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 0.0f);
}

TEST_F(Reference, LatentsPackByTwoByTwoAndComeBack) {
  std::vector<float> latents(2 * 4 * 6);
  for (size_t i = 0; i < latents.size(); ++i) latents[i] = static_cast<float>(i);
  std::vector<float> tokens(2 * 3 * 8);
  std::vector<float> grid(4 * 6 * 2);
  ASSERT_TRUE(PackLatents({.latents = latents.data(),
                           .grid_height = 2,
                           .grid_width = 3,
                           .tokens = View(tokens, 6, 8)},
                          context_)
                  .ok());
  // Token (1, 2), channel 1, dy 1, dx 0: latent row 3, column 4 of the second channel.
  EXPECT_EQ(tokens[5 * 8 + 4 + 2], latents[24 + 3 * 6 + 4]);
  const std::vector<float> mean = {0.5f, -1};
  const std::vector<float> std = {2, 4};
  ASSERT_TRUE(UnpackLatents({.tokens = View(tokens, 6, 8),
                             .grid_height = 2,
                             .grid_width = 3,
                             .mean = mean.data(),
                             .std = std.data(),
                             .grid = View(grid, 24, 2)},
                            context_)
                  .ok());
  for (int64_t pixel = 0; pixel < 24; ++pixel) {
    EXPECT_EQ(grid[pixel * 2], latents[pixel] * 2 + 0.5f);
    EXPECT_EQ(grid[pixel * 2 + 1], latents[24 + pixel] * 4 - 1);
  }
}

TEST_F(Reference, ConvolutionTakesTheLastTemporalTap) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6};  // 2 x 3, one channel
  std::vector<float> weight(2 * 9, 100.0f);   // [1, 1, 2, 3, 3]
  for (int tap = 0; tap < 9; ++tap) weight[9 + tap] = static_cast<float>(tap == 5);  // right
  const std::vector<float> bias = {0.5f};
  std::vector<float> y(6);
  Conv2dParams params = {.x = View(x, 6, 1),
                         .height = 2,
                         .width = 3,
                         .weight = Weight(weight, {1, 1, 2, 3, 3}),
                         .bias = Weight(bias, {1}),
                         .y = View(y, 6, 1)};
  ASSERT_TRUE(Conv2d(params, context_).ok());
  EXPECT_EQ(y, (std::vector<float>{2.5f, 3.5f, 0.5f, 5.5f, 6.5f, 0.5f}));
  std::vector<float> doubled(24);
  params.upsample = true;
  params.y = View(doubled, 24, 1);
  ASSERT_TRUE(Conv2d(params, context_).ok());
  EXPECT_EQ(std::vector<float>(doubled.begin() + 6, doubled.begin() + 12),
            (std::vector<float>{1.5f, 2.5f, 2.5f, 3.5f, 3.5f, 0.5f}));
}

TEST_F(Reference, PixelsRoundHalfToEven) {
  std::vector<float> x = {-3, -1, 1, 2, 1.0f / 255.0f, NAN};
  std::vector<uint8_t> pixels(x.size());
  ASSERT_TRUE(Pixels({.x = View(x, 2, 3), .pixels = pixels.data()}, context_).ok());
  EXPECT_EQ(pixels, (std::vector<uint8_t>{0, 0, 255, 255, 128, 0}));
}

TEST_F(Reference, TimestepEmbeddingPutsCosinesFirst) {
  const std::vector<float> timesteps = {0.25f};
  std::vector<float> y(256);
  ASSERT_TRUE(
      TimestepEmbedding({.timesteps = timesteps.data(), .y = View(y, 1, 256)}, context_).ok());
  EXPECT_NEAR(y[0], std::cos(250.0), 1e-5);
  EXPECT_NEAR(y[128 + 64], std::sin(250.0 * std::exp(-std::log(1e4) / 2)), 1e-5);
}

TEST_F(Reference, EmbeddingWidensRowsAndRefusesForeignIds) {
  const std::vector<uint16_t> table = {0x3f80, 0x4000, 0x4040, 0x4080};
  const WeightView view = {.data = table.data(), .dtype = DType::kBF16, .shape = {2, 2}};
  std::vector<int32_t> ids = {1, 0};
  std::vector<float> y(4);
  ASSERT_TRUE(Embedding({.ids = ids.data(), .table = view, .y = View(y, 2, 2)}, context_).ok());
  EXPECT_EQ(y, (std::vector<float>{3, 4, 1, 2}));
  ids[1] = 2;
  EXPECT_FALSE(Embedding({.ids = ids.data(), .table = view, .y = View(y, 2, 2)}, context_).ok());
}

TEST_F(Reference, FiniteFindsTheOneThatIsNot) {
  std::vector<float> x(33, 1.0f);
  bool finite = false;
  ASSERT_TRUE(Finite({.x = View(x, 3, 11), .all_finite = &finite}, context_).ok());
  EXPECT_TRUE(finite);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    x[32] = bad;
    ASSERT_TRUE(Finite({.x = View(x, 3, 11), .all_finite = &finite}, context_).ok());
    EXPECT_FALSE(finite);
  }
}

}  // namespace
}  // namespace segue::kernels
