// Rounding::kBF16Once: a chain in float32, rounded where it reaches memory and nowhere before.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/dtype.h"
#include "kernels/activation.h"
#include "kernels/gate_residual.h"
#include "kernels/guidance.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/test_support.h"

namespace segue::kernels {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kCols = 48;

Matrix BF16Matrix(int64_t cols, uint32_t seed) {
  Matrix matrix = RandomMatrix(kRows, cols, 0, seed);
  for (float& value : matrix.data) value = RoundToBF16(value);
  return matrix;
}

class OnceRounding : public testing::Test {
 protected:
  // `run` gives an operation's output under a rounding.
  void ExpectRoundedOnce(const std::function<std::vector<float>(Rounding)>& run) {
    std::vector<float> want = run(Rounding::kNone);
    for (float& value : want) value = RoundToBF16(value);
    EXPECT_TRUE(SameBits(run(Rounding::kBF16Once), want));
    EXPECT_FALSE(SameBits(run(Rounding::kBF16), want)) << "a chain whose steps do not matter";
  }
  static void ExpectOk(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.error().Message();
  }

  ThreadPool pool_{1};
  Context context_{.stream = Stream::Cpu(pool_)};
  Matrix table_ = BF16Matrix(3 * kCols, 9);
  RowTable Slice(int64_t part) const {
    return {.data = table_.data.data() + part * kCols,
            .rows = kRows,
            .stride = table_.stride,
            .index = index_.data()};
  }
  const std::vector<int32_t> index_ = {2, 0, 1, 1, 2, 6, 5};
};

TEST_F(OnceRounding, GatedSumsAndNorms) {
  ExpectRoundedOnce([&](Rounding rounding) {
    Matrix h = BF16Matrix(kCols, 1);
    Matrix y = BF16Matrix(kCols, 2);
    ExpectOk(GateResidual({y.View(), Slice(0), h.View(), rounding}, context_));
    return h.data;
  });
  ExpectRoundedOnce([&](Rounding rounding) {
    Matrix x = BF16Matrix(kCols, 1);
    ExpectOk(LayerNorm(
        {.x = x.View(), .y = x.View(), .scale = Slice(1), .shift = Slice(2), .rounding = rounding},
        context_));
    return x.data;
  });
}

TEST_F(OnceRounding, Heads) {
  constexpr int32_t kDim = 16;
  const Weight weight = RandomWeight(DType::kBF16, {kDim}, 4);
  Matrix angles = RandomMatrix(kRows, kDim, 0, 5);
  const RopeTable rope = {
      .cos = angles.data.data(), .sin = angles.data.data() + kRows * kDim / 2, .positions = kRows};
  for (const bool rotated : {false, true}) {
    ExpectRoundedOnce([&](Rounding rounding) {
      Matrix x = BF16Matrix(kCols, 1);
      ExpectOk(QkNormRope({.x = x.View(),
                           .head_dim = kDim,
                           .weight = weight.view,
                           .rope = rotated ? rope : RopeTable{},
                           .rounding = rounding},
                          context_));
      return x.data;
    });
  }
}

TEST_F(OnceRounding, AnActivationOfAProduct) {
  const Weight weight = RandomWeight(DType::kBF16, {kCols, kCols}, 2);
  const Weight bias = RandomWeight(DType::kBF16, {kCols}, 3);
  ExpectRoundedOnce([&](Rounding rounding) {
    Matrix x = BF16Matrix(kCols, 1);
    Matrix y = BF16Matrix(kCols, 2);
    ExpectOk(Linear({.x = x.View(),
                     .weight = weight.view,
                     .bias = bias.view,
                     .y = y.View(),
                     .rounding = rounding,
                     .activation = Activation::kGeluTanh},
                    context_));
    return y.data;
  });
  ExpectRoundedOnce([&](Rounding rounding) {
    Matrix gate = BF16Matrix(kCols, 1);
    Matrix up = BF16Matrix(kCols, 2);
    ExpectOk(SiluMul({gate.View(), up.View(), gate.View(), rounding}, context_));
    return gate.data;
  });
}

TEST_F(OnceRounding, Guidance) {
  ExpectRoundedOnce([&](Rounding rounding) {
    Matrix cond = BF16Matrix(kCols, 1);
    Matrix negative = BF16Matrix(kCols, 2);
    ExpectOk(kernels::Guidance({.cond = cond.View(),
                                .negative = negative.View(),
                                .y = cond.View(),
                                .scale = 4.0f,
                                .rounding = rounding},
                               context_));
    return cond.data;
  });
}

}  // namespace
}  // namespace segue::kernels
