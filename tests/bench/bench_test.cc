// The drivers verify what they time: small cases, whose speed is of no interest here.
#include <gtest/gtest.h>

#include "bench/cpu_attention.h"
#include "bench/cpu_product.h"
#include "bench/timing.h"

namespace segue::bench {
namespace {

TEST(Bench, ProductsAgreeWithThePeerWhereThereIsOne) {
  const ProductOptions options = {
      .cases = {{5, 33, 70}, {5, 33, 70, DType::kF16}, {5, 33, 70, DType::kF32}},
      .threads = 1,
      .rounds = 1,
      .sample_s = 0.0};
  Result<ProductReport> report = BenchProducts(options);
  ASSERT_TRUE(report.ok()) << report.error().Message();
  EXPECT_FALSE(report->peer.empty());
  ASSERT_EQ(report->rows.size(), 3u);
  EXPECT_EQ(report->rows[1].name, "5 x 33 x 70 F16");
  for (const ProductRow& row : report->rows) {
    EXPECT_GT(row.ours_gflops, 0.0);
    EXPECT_LT(row.relative_difference, 1e-6);
    EXPECT_FALSE(row.kernel.empty());
  }
}

TEST(Bench, AttentionAgreesWithTheReference) {
  Result<AttentionReport> report =
      BenchAttention({.cases = {{50, 2, 16}}, .threads = 1, .rounds = 1, .sample_s = 0.0});
  ASSERT_TRUE(report.ok()) << report.error().Message();
  ASSERT_EQ(report->rows.size(), 1u);
  EXPECT_EQ(report->rows[0].name, "50 rows, 2 heads of 16");
  EXPECT_LT(report->rows[0].largest_difference, 2e-6);
  EXPECT_GT(report->rows[0].ours_gflops, 0.0);
}

TEST(Bench, EachSideIsCalledTwiceARound) {
  int ours = 0;
  int peer = 0;
  TimePair([&] { ++ours; }, [&] { ++peer; }, 3, 0.0);
  EXPECT_EQ(ours, 2 + 6);  // two calls find the number of calls a sample
  EXPECT_EQ(peer, 2 + 6);
}

}  // namespace
}  // namespace segue::bench
