#include "kernels/random_weights.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "device/thread_pool.h"

namespace segue::kernels {
namespace {

std::vector<uint16_t> Make(RandomWeightsParams params, int threads = 1) {
  ThreadPool pool(threads);
  // What is not written stays a NaN.
  std::vector<uint16_t> y(static_cast<size_t>(params.rows * params.cols) + 1, 0x7fff);
  params.y = y.data();
  const Status status = RandomWeights(params, {.stream = Stream::Cpu(pool)});
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(y.back(), 0x7fff);
  y.pop_back();
  return y;
}

// SplitMix64 of a counter, worked out apart from this code: a model's weights must stay the same.
TEST(RandomWeights, SumsAreFixed) {
  const int32_t wanted[4] = {54055, 5265, -54986, 42349};
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(RandomWeightSum(0, i), wanted[i]) << i;
  EXPECT_EQ(RandomWeightKey(0, ""), 0xcbf29ce484222325u);
  EXPECT_EQ(RandomWeightKey(0, "a"), 0xaf63dc4c8601ec8cu);
  EXPECT_NE(RandomWeightKey(1, "a"), RandomWeightKey(0, "a"));
}

TEST(RandomWeights, AreAboutNormal) {
  constexpr int64_t kCount = 1 << 20;
  const std::vector<uint16_t> y = Make({.key = RandomWeightKey(3, "w"),
                                        .mean = 0.5f,
                                        .deviation = 0.25f,
                                        .rows = 1,
                                        .cols = kCount});
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  double neighbours = 0;
  double last = 0;
  for (const uint16_t bits : y) {
    const double value = (BF16ToFloat(bits) - 0.5) / 0.25;
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
    neighbours += value * last;
    last = value;
  }
  // Standard errors are 0.001, 0.0014 and 0.004. Four uniforms have a kurtosis of 3 - 1.2 / 4.
  EXPECT_NEAR(sum / kCount, 0, 0.005);
  EXPECT_NEAR(squares / kCount, 1, 0.007);
  EXPECT_NEAR(fourths / kCount, 2.7, 0.03);
  EXPECT_NEAR(neighbours / kCount, 0, 0.005);
}

TEST(RandomWeights, SlicesHoldTheWholeTensorsValues) {
  RandomWeightsParams whole{.key = 5, .deviation = 2, .stride = 301, .rows = 700, .cols = 301};
  const std::vector<uint16_t> all = Make(whole);
  EXPECT_EQ(Make(whole, 4), all);
  const std::vector<uint16_t> slice = Make(
      {.key = 5, .deviation = 2, .first = 10 * 301 + 7, .stride = 301, .rows = 20, .cols = 33});
  for (size_t row = 0; row < 20; ++row) {
    for (size_t col = 0; col < 33; ++col) {
      ASSERT_EQ(slice[row * 33 + col], all[(row + 10) * 301 + col + 7]);
    }
  }
}

TEST(RandomWeights, RefusesWhatCannotBe) {
  ThreadPool pool(1);
  const Context context{.stream = Stream::Cpu(pool)};
  uint16_t y[4] = {};
  EXPECT_FALSE(RandomWeights({.rows = 2, .cols = 2, .y = nullptr}, context).ok());
  EXPECT_FALSE(RandomWeights({.stride = 1, .rows = 2, .cols = 2, .y = y}, context).ok());
  EXPECT_FALSE(RandomWeights({.rows = -1, .cols = 2, .y = y}, context).ok());
  EXPECT_TRUE(RandomWeights({.rows = 0, .cols = 2}, context).ok());
}

}  // namespace
}  // namespace segue::kernels
