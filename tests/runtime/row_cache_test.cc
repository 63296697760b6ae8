#include "runtime/row_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/recorded_step.h"
#include "runtime/text_slot.h"

namespace segue::runtime {
namespace {

using Keys = std::vector<uint32_t>;
using Rows = std::vector<int32_t>;

TEST(RowCache, FillsRowsInOrderAndFindsThemAgain) {
  RowCache cache(4);
  const auto first = cache.Find(Keys{30, 10, 30, 20});
  ASSERT_TRUE(first);
  // Misses are given rows in ascending order of keys, so that a schedule lies together.
  EXPECT_EQ(first->rows, (Rows{2, 0, 2, 1}));
  ASSERT_EQ(first->misses.size(), 3u);
  EXPECT_EQ(first->misses[2].key, 30u);
  EXPECT_EQ(first->misses[2].row, 2);
  const auto again = cache.Find(Keys{20});
  EXPECT_EQ(again->rows, Rows{1});
  EXPECT_TRUE(again->misses.empty());
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.misses(), 3);
}

TEST(RowCache, GivesUpTheRowUsedLongestAgo) {
  RowCache cache(3);
  (void)cache.Find(Keys{1, 2, 3});
  (void)cache.Find(Keys{1});
  EXPECT_EQ(cache.Find(Keys{4})->rows, Rows{1});  // 2's
  EXPECT_EQ(cache.Find(Keys{1, 3, 4})->misses.size(), 0u);
  EXPECT_EQ(cache.Find(Keys{2})->misses.size(), 1u);
}

TEST(RowCache, OneCallsRowsHoldTogether) {
  RowCache cache(3);
  (void)cache.Find(Keys{1, 2, 3});
  // 1 is the oldest, but asked for again beside two others.
  const auto both = cache.Find(Keys{7, 1, 8});
  ASSERT_TRUE(both);
  EXPECT_EQ(std::set<int32_t>(both->rows.begin(), both->rows.end()).size(), 3u);
  EXPECT_EQ(both->rows[1], 0);
  EXPECT_FALSE(cache.Find(Keys{1, 2, 3, 4}));
  EXPECT_TRUE(cache.Find(Keys{5, 5, 5, 5}));
}

TEST(RowCache, ForgottenRowsAreWrittenAgain) {
  RowCache cache(2);
  const auto lookup = cache.Find(Keys{1, 2});
  cache.Forget(lookup->misses);
  EXPECT_EQ(cache.Find(Keys{1, 2})->misses.size(), 2u);
}

// Against a mirror that remembers what was written where.
TEST(RowCache, RandomCallsNeverNameARowOfAnotherKey) {
  std::mt19937 random(7);
  RowCache cache(16);
  std::unordered_map<int32_t, uint32_t> written;
  for (int call = 0; call < 2000; ++call) {
    Keys keys(1 + random() % 16);
    for (uint32_t& key : keys) key = random() % 40;
    const auto lookup = cache.Find(keys);
    ASSERT_TRUE(lookup);
    for (const auto& miss : lookup->misses) written[miss.row] = miss.key;
    for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(written.at(lookup->rows[i]), keys[i]);
  }
}

TEST(TextSlot, IsTheSmallestThatHoldsThePrompt) {
  EXPECT_EQ(TextSlot(0), 64);
  EXPECT_EQ(TextSlot(64), 64);
  EXPECT_EQ(TextSlot(65), 128);
  EXPECT_EQ(TextSlot(513), 1024);
  EXPECT_EQ(TextSlot(1024), 1024);
  EXPECT_EQ(TextSlot(2000), 2000);
}

TEST(StepShape, OrdersAndNames) {
  const StepShape one = {{{64, 64, 64}, {64, 64, 128}}};
  EXPECT_EQ(one.ToString(), "64x64+64 64x64+128 lossless");
  EXPECT_EQ(one, (StepShape{{{64, 64, 64}, {64, 64, 128}}}));
  EXPECT_NE(one, (StepShape{{{64, 64, 64}}}));
  StepShape gated = one;
  gated.mounted.tier = Quality::kHigh;
  EXPECT_NE(gated, one);
  StepShape other = gated;
  other.mounted.gates.Add(quality::Gate::kFloat32Norms);
  EXPECT_NE(other, gated);
  EXPECT_EQ(other.ToString(), "64x64+64 64x64+128 high:float32-norms");
}

}  // namespace
}  // namespace segue::runtime
