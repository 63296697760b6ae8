#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace segue {
namespace {

TEST(DType, BF16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBF16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBF16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even stays
  EXPECT_EQ(FloatToBF16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, odd goes up
  EXPECT_EQ(FloatToBF16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBF16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(BF16ToFloat(FloatToBF16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, EveryBF16PatternSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = BF16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToBF16(value), bits);
  }
}

TEST(DType, EveryF16PatternSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToF16(value), bits) << bits;
  }
}

// The compiler's own conversion is the judge between two neighbouring patterns.
TEST(DType, F16RoundsLikeTheCompiler) {
  for (uint32_t bits = 0; bits < 0x7f900000u; bits += 0x0733u) {
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(FloatToF16(value), expected) << bits;
    ASSERT_EQ(FloatToF16(-value), expected | 0x8000u) << bits;
  }
}

}  // namespace
}  // namespace segue
