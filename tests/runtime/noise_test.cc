#include "runtime/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace segue::runtime {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers published with the generator.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Gaussian, FollowsItsDefinition) {
  const uint64_t seed = 0x123456789abcdef0u;
  std::vector<float> values(4001);
  FillGaussian(seed, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto words = Philox4x32({static_cast<uint32_t>(i / 4), 0, 0, 0},
                                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const size_t pair = i % 4 / 2;
    const double radius = std::sqrt(-2 * std::log((words[2 * pair] + 0.5) / 4294967296.0));
    const double angle = 2 * std::numbers::pi * words[2 * pair + 1] / 4294967296.0;
    const double want = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    EXPECT_NEAR(values[i], want, 4e-7 * std::max(1.0, std::fabs(want))) << i;
  }
}

TEST(Gaussian, HasTheMomentsOfTheNormalDistribution) {
  const size_t count = 200000;
  std::vector<float> values(count);
  FillGaussian(7, values);
  double mean = 0, square = 0, fourth = 0;
  for (const float v : values) {
    mean += v;
    square += double{v} * v;
    fourth += double{v} * v * v * v;
  }
  // Five standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(mean / count, 0.0, 0.0112);
  EXPECT_NEAR(square / count, 1.0, 0.0159);
  EXPECT_NEAR(fourth / count, 3.0, 0.11);
}

TEST(Gaussian, AnElementDependsOnSeedAndIndexAlone) {
  std::vector<float> whole(1000), part(13), other(13);
  FillGaussian(42, whole);
  FillGaussian(42, part);
  FillGaussian(43, other);
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[i]);
  EXPECT_NE(part, other);
  FillGaussian(uint64_t{42} << 32, other);
  EXPECT_NE(part, other);
}

// The same on every platform: pinned values.
TEST(Gaussian, PinnedValues) {
  std::vector<float> values(8);
  FillGaussian(0, values);
  const std::vector<float> want = {0x1.fb7666p-1f,  -0x1.d96d6p-1f,  -0x1.3c373ep-1f,
                                   -0x1.eda364p-2f, -0x1.3aa6aep-3f, 0x1.7254dap-3f,
                                   0x1.a9d93p-1f,   0x1.945b46p-3f};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(values[i], want[i]) << i;
}

}  // namespace
}  // namespace segue::runtime
