#include "bench/attention_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bench/attention_check.h"
#include "bench/cudnn_peer.h"

namespace segue::bench {
namespace {

Result<AttentionCase> Read(const std::string& values) {
  const Result<std::vector<Case>> cases = ParseSuite("gpu_attention x " + values);
  EXPECT_TRUE(cases.ok());
  return ReadAttentionCase(cases->front());
}

TEST(AttentionCase, TwoSegmentsLieInTensorsOfTheirOwn) {
  const auto shape = Read("text=64 image=4096 heads=12 slot=1024");
  ASSERT_TRUE(shape.ok()) << shape.error().Message();
  EXPECT_EQ(shape->tensor_rows, (std::vector<int32_t>{1024, 4096}));
  EXPECT_EQ(shape->sequences(), 1);
  EXPECT_EQ(shape->QueryRows(0), 4160);
  EXPECT_EQ(shape->rows[1].source, 1);
  EXPECT_EQ(shape->kv_heads, 12);
  EXPECT_DOUBLE_EQ(shape->Operations(), 4.0 * 4160 * 4160 * 12 * 128);

  const AttentionCase joined = Concatenated(*shape);
  EXPECT_EQ(joined.tensor_rows, (std::vector<int32_t>{4160}));
  EXPECT_EQ(joined.segments, 1);
  EXPECT_DOUBLE_EQ(joined.Operations(), shape->Operations());
}

TEST(AttentionCase, LengthsRepeatAndFollowFormulas) {
  const auto listed = Read("lengths=2x256,8192 heads=1");
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->sequences(), 3);
  EXPECT_EQ(listed->rows[1].q_begin, 256);
  EXPECT_EQ(listed->rows[2].kv_rows, 8192);
  EXPECT_EQ(listed->TotalQueryRows(), 8704);

  const auto formula = Read("count=256 base=16 step=1237 modulus=497 heads=1");
  ASSERT_TRUE(formula.ok());
  EXPECT_EQ(formula->sequences(), 256);
  EXPECT_EQ(formula->QueryRows(0), 16);
  EXPECT_EQ(formula->QueryRows(3), 16 + 3 * 1237 % 497);

  const AttentionCase reversed = Reversed(*listed);
  EXPECT_EQ(reversed.QueryRows(0), 8192);
  EXPECT_EQ(reversed.rows[1].q_begin, 8192);
  EXPECT_DOUBLE_EQ(reversed.Operations(), listed->Operations());
}

TEST(AttentionCase, CausalRowsAreCountedOneByOne) {
  // Rows see 1, 2 and 3 keys.
  EXPECT_DOUBLE_EQ(Read("lengths=3 heads=4 kv_heads=2 causal=1")->Operations(), 4.0 * 128 * 4 * 6);
}

TEST(AttentionCase, RowsBehindTheSequencesSeeNoKey) {
  const auto shape = Read("lengths=100 tail=16 heads=2");
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->tensor_rows[0], 116);
  EXPECT_EQ(shape->sequences(), 2);
  EXPECT_EQ(shape->KeyRows(1), 0);
  EXPECT_DOUBLE_EQ(shape->Operations(), 4.0 * 128 * 2 * 100 * 100);
}

TEST(AttentionCase, BadValuesAreNamed) {
  EXPECT_EQ(Read("lengths=100").error().got, "no heads");
  EXPECT_EQ(Read("lengths=100,abc heads=2").error().got, "abc");
  EXPECT_EQ(Read("lengths=100,,3 heads=2").error().got, "");
  EXPECT_EQ(Read("lengths=0 heads=2").error().got, "0");
  EXPECT_EQ(Read("heads=2").error().got, "no count");
  EXPECT_EQ(Read("lengths=5 heads=6 kv_heads=4").error().wanted, "a divisor of 6");
  EXPECT_EQ(Read("lengths=5 heads=6 kv_heads=0").error().wanted, "a divisor of 6");
  EXPECT_EQ(Read("text=64 image=5 slot=63 heads=1").error().wanted, "at least 64");
  EXPECT_EQ(Read("lengths=5 heads=6 causal=2").error().wanted, "0 to 1");
}

TEST(CudnnForms, FollowFromTheLengths) {
  using Forms = std::vector<CudnnForm>;
  EXPECT_EQ(FormsFor(*Read("text=64 image=96 heads=1")), Forms{CudnnForm::kBatch});
  EXPECT_EQ(FormsFor(*Read("lengths=2x64 heads=1")), Forms{CudnnForm::kBatch});
  EXPECT_EQ(FormsFor(*Read("lengths=64,65 heads=1")),
            (Forms{CudnnForm::kOneByOne, CudnnForm::kPadded}));
  EXPECT_EQ(FormsFor(*Read("lengths=64 tail=3 heads=1")),
            (Forms{CudnnForm::kOneByOne, CudnnForm::kAllRows}));
}

TEST(AttentionCheck, ReferenceIsSoftmaxOverTheKeysThatAreSeen) {
  // Two dimensions; scores 0 and log 3 give weights 1/4 and 3/4.
  const float query[2] = {1.0f, 0.0f};
  const auto log3 = std::log(3.0f);
  const HostHead head{.keys = {0.0f, 5.0f, log3, 7.0f}, .values = {4.0f, 0.0f, 0.0f, 8.0f}};
  const RowReference two = ReferenceRow(query, head, 2, 2, 1.0f);
  EXPECT_NEAR(two.exact[0], 1.0, 1e-6);
  EXPECT_NEAR(two.exact[1], 6.0, 1e-6);
  // 1/3 is no bfloat16: the plain kernel's weights sum to a little more than its divisor says.
  EXPECT_NE(two.plain[1], two.exact[1]);
  EXPECT_NEAR(two.plain[1], 6.0, 6.0 / 128);

  const RowReference one = ReferenceRow(query, head, 1, 2, 1.0f);
  EXPECT_EQ(one.exact, (std::vector<double>{4.0, 0.0}));
  const RowReference none = ReferenceRow(query, head, 0, 2, 1.0f);
  EXPECT_EQ(none.exact, (std::vector<double>{0.0, 0.0}));
  EXPECT_EQ(none.plain, none.exact);
}

}  // namespace
}  // namespace segue::bench
