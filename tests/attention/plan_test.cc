#include "attention/plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace segue::attention {
namespace {

Segment Rows(int64_t q_rows, int64_t kv_rows) { return {.q_rows = q_rows, .kv_rows = kv_rows}; }

TEST(TilePlan, TakesTheLongestSequenceFirstAndCoversEveryRowOnce) {
  const std::vector<Sequence> sequences = {
      {{Rows(3, 3), Rows(2, 2)}}, {{Rows(0, 4)}}, {{Rows(10, 10)}}, {}};
  const TilePlan plan = MakeTilePlan({.q_heads = 2}, sequences, 4);
  EXPECT_EQ(plan.total_query_rows, 15);
  EXPECT_EQ(plan.query_offset, (std::vector<int64_t>{0, 5, 5, 15}));
  EXPECT_EQ(plan.rows[1].query, 0);
  EXPECT_EQ(plan.rows[1].key, 4);
  const std::vector<Tile> want = {{2, 0, 0, 4}, {2, 0, 4, 4}, {2, 0, 8, 2}, {2, 1, 0, 4},
                                  {2, 1, 4, 4}, {2, 1, 8, 2}, {0, 0, 0, 4}, {0, 0, 4, 1},
                                  {0, 1, 0, 4}, {0, 1, 4, 1}};
  EXPECT_EQ(plan.tiles, want);
  EXPECT_EQ(plan.ToString(), "4 sequences, 10 tiles of at most 4 query rows");
}

}  // namespace
}  // namespace segue::attention
