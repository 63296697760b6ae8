// Plans of the plain CUDA kernel as far as they go without a GPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "segue/attention_plan.h"

namespace segue::attention {
namespace {

PlanSettings SmallModelSettings() {
  PlanSettings settings;
  settings.options = {.q_heads = 6,
                      .kv_heads = 6,
                      .head_dim = 32,
                      .softmax_scale = 0.177f,
                      .element_type = ElementType::kBFloat16};
  settings.place = Place::kCuda;
  settings.gpu = Gpu{90, 132};
  settings.max_sequences = 3;
  settings.max_segments = 2;
  settings.tensors = {{128, 128}, {512, 512}};
  settings.device_lengths = true;
  return settings;
}

std::string CreationError(const PlanSettings& settings) {
  const Result<Plan> plan = Plan::Create(settings);
  return plan.ok() ? "" : plan.error().Message();
}
bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CudaPlan, ServesWhatComesBeforeItDoesNot) {
  const Result<Plan> plan = Plan::Create(SmallModelSettings());
  ASSERT_TRUE(plan.ok()) << plan.error().Message();
  EXPECT_EQ(plan->backend(), "cuda");
  EXPECT_EQ(plan->choices()[0].reason, "head_dim is not 128");
  EXPECT_TRUE(Has(plan->choices()[1].reason, "lengths in device memory"));
  EXPECT_EQ(plan->workspace_bytes() % 256, 0);

  const std::vector<SegmentRows> rows = {
      {0, 0, 20, 0, 20}, {1, 0, 256, 0, 256}, {0, 20, 0, 20, 40}, {1, 256, 65, 256, 66}};
  Result<WorkList> list = plan->Work(rows);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->query_rows, 64);
  EXPECT_EQ(list->key_rows, 64);
  EXPECT_FALSE(list->dynamic);
  EXPECT_EQ(list->workers.size(), 2u * ((640 / 128 + 6) * 6 + 132));  // a tile of the capacity each
  // 1 + 2 entries of six heads, then one: each two tiles, though 20 rows are but one.
  ASSERT_EQ(list->tiles.size(), 2u * 6 * (1 + 2 + 1));
  EXPECT_EQ(list->tiles[0].query_rows, 20);
  EXPECT_EQ(list->tiles[0].key_tiles, (276 + 63) / 64);
  EXPECT_EQ(list->tiles[1].query_rows, 0);
  EXPECT_EQ(list->tiles[1].key_tiles, 0);
  EXPECT_EQ(list->tiles[3].query_begin, 20 + 64);
  EXPECT_EQ(list->tiles.back().query_rows, 1);
  EXPECT_EQ(list->tiles.back().key_tiles, 2);  // 106 keys
}

TEST(CudaPlan, TilesVisitTheKeysThatTheirLastRowSees) {
  PlanSettings settings = SmallModelSettings();
  settings.options = {.q_heads = 6,
                      .kv_heads = 2,
                      .head_dim = 256,
                      .softmax_scale = 0.0625f,
                      .causal = true,
                      .element_type = ElementType::kFloat16};
  const Result<Plan> plan = Plan::Create(settings);
  ASSERT_TRUE(plan.ok()) << plan.error().Message();
  const std::vector<SegmentRows> rows = {{0, 0, 98, 0, 98}, {1, 0, 100, 0, 10}};
  const Result<WorkList> list = plan->Work(rows);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->key_rows, 32);
  // The last rows first: rows 98 to 161 of 198, 108 keys; then rows 162 to 197.
  EXPECT_EQ(list->tiles[0].query_begin, 98);
  EXPECT_EQ(list->tiles[0].key_tiles, (161 + 1 - 90 + 31) / 32);
  EXPECT_EQ(list->tiles[1].key_tiles, (108 + 31) / 32);
  EXPECT_EQ(list->tiles[1].query_rows, 36);
  // Rows 0 to 63 see nothing.
  EXPECT_EQ(list->tiles[12].query_begin, 0);
  EXPECT_EQ(list->tiles[12].key_tiles, 0);
  EXPECT_EQ(list->tiles[13].key_tiles, 1);  // row 97 sees 8
}

TEST(CudaPlan, SaysWhyItRefuses) {
  const auto reason = [](auto change) {
    PlanSettings settings = SmallModelSettings();
    settings.backend = "cuda";
    change(settings);
    return CreationError(settings);
  };
  using P = PlanSettings;
  EXPECT_EQ(reason([](P&) {}), "");
  EXPECT_EQ(reason([](P& p) { p.options.head_dim = 256; }), "");
  EXPECT_TRUE(Has(reason([](P& p) { p.gpu = Gpu{80, 108}; }),
                  "compute capability 8.0, and this build has code for 9.0"));
  for (const int32_t head_dim : {4, 20, 264}) {
    EXPECT_TRUE(Has(reason([=](P& p) { p.options.head_dim = head_dim; }), "multiple of 8 up to"));
  }
  EXPECT_TRUE(Has(reason([](P& p) { p.options.element_type = ElementType::kFloat32; }), "float32"));
  EXPECT_TRUE(Has(reason([](P& p) { p.options.softmax_scale = 0.0f; }), "softmax scale"));
  EXPECT_TRUE(Has(reason([](P& p) { p.tensors.resize(9); }), "9 tensor sets, more than 8"));
  EXPECT_TRUE(Has(reason([](P& p) { p.max_segments = 33; }), "more than 32 in a sequence"));
  EXPECT_TRUE(Has(reason([](P& p) { p.max_sequences = 2049; }), "more than 2048"));
}

}  // namespace
}  // namespace segue::attention
