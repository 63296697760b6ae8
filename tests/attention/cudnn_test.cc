// The cuDNN back end as far as it goes without a GPU: how segments become tensors, and its reasons.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/backends/cudnn_operands.h"
#include "segue/attention_plan.h"

namespace segue::attention {
namespace {

using Rows = std::vector<SegmentRows>;

TEST(CudnnOperands, SegmentsThatTouchAreOnePiece) {
  const Rows rows = {{0, 5, 3, 50, 0}, {0, 8, 2, 50, 4}, {1, 0, 0, 7, 1}, {0, 10, 1, 54, 6}};
  EXPECT_EQ(QueryPieces(rows), (RowPieces{{0, 5, 6}}));
  EXPECT_EQ(KeyPieces(rows), (RowPieces{{0, 50, 4}, {1, 7, 1}, {0, 54, 6}}));
  EXPECT_EQ(CountRows(KeyPieces(rows)), 11);
  EXPECT_TRUE(QueryPieces(Rows{{1, 3, 0, 2, 9}}).empty());
}

TEST(CudnnOperands, SlicesCrossPieces) {
  const RowPieces pieces = {{0, 10, 4}, {2, 0, 3}, {1, 7, 5}};
  EXPECT_EQ(SlicePieces(pieces, 0, 12), pieces);
  EXPECT_EQ(SlicePieces(pieces, 0, 0), RowPieces{});
  EXPECT_EQ(SlicePieces(pieces, 3, 5), (RowPieces{{0, 13, 1}, {2, 0, 3}, {1, 7, 1}}));
  EXPECT_EQ(SlicePieces(pieces, 7, 5), (RowPieces{{1, 7, 5}}));
}

TEST(CudnnOperands, RowsStayInPlaceWhereTheyCan) {
  alignas(16) static uint16_t memory[4096];
  alignas(16) static uint16_t scratch[4096];
  // 2 heads of 8 in rows of 48.
  std::vector<TensorSet> sets(2);
  sets[0].k = {memory, 48, 8};
  sets[1].k = {memory + 4, 48, 8};
  const CudnnTensor keys(sets, &TensorSet::k, 2, 8, scratch);
  const RowPieces one = {{0, 3, 10}};
  EXPECT_TRUE(keys.InPlace(one));
  EXPECT_EQ(keys.Operand(one).data, memory + 3 * 48);
  EXPECT_EQ(keys.Operand(one).strides, (kernels::CudnnStrides{480, 8, 48}));
  // Two pieces, or a pointer 8 bytes past 16: put together in the scratch.
  for (const RowPieces& elsewhere : {RowPieces{{0, 3, 10}, {0, 20, 2}}, RowPieces{{1, 0, 12}}}) {
    EXPECT_FALSE(keys.InPlace(elsewhere));
    EXPECT_EQ(keys.Operand(elsewhere).data, scratch);
    EXPECT_EQ(keys.Operand(elsewhere).strides, (kernels::CudnnStrides{192, 8, 16}));
    EXPECT_TRUE(keys.Check(elsewhere, "k").ok());
  }
  // Rows inside one another cannot be copied.
  sets[0].k.row_stride = 8;
  const Status status = keys.Check({{0, 3, 10}, {0, 20, 2}}, "k");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().argument, "cudnn, tensor set 0, k");
  EXPECT_EQ(status.error().got, "rows 16 bytes apart");
}

PlanSettings Settings() {
  PlanSettings settings;
  settings.max_sequences = 4;
  settings.max_segments = 2;
  settings.options = {.q_heads = 6,
                      .kv_heads = 2,
                      .head_dim = 64,
                      .softmax_scale = 0.125f,
                      .element_type = ElementType::kFloat16};
  settings.place = Place::kCuda;
  settings.gpu = Gpu{90, 132};
  settings.tensors = {{64, 64}, {300, 300}};
  settings.backend = "cudnn";
  return settings;
}

std::string Reason(const PlanSettings& settings) {
  const Result<Plan> plan = Plan::Create(settings);
  return plan.ok() ? "" : plan.error().got;
}

TEST(CudnnPlan, SaysWhyItRefuses) {
  const auto refusal = [](auto change) {
    PlanSettings settings = Settings();
    change(settings);
    return Reason(settings);
  };
  using P = PlanSettings;
  EXPECT_EQ(refusal([](P& p) { p.device_lengths = true; }),
            "cudnn: lengths in device memory: the library needs them on the host");
  EXPECT_EQ(refusal([](P& p) { p.options.head_dim = 20; }),
            "cudnn: head_dim is 20, not a multiple of 8 up to 256");
  EXPECT_EQ(refusal([](P& p) { p.options.element_type = ElementType::kFloat32; }),
            "cudnn: element type is float32, not bfloat16 or float16");
  EXPECT_EQ(refusal([](P& p) { p.options.softmax_scale = -1.0f; }),
            "cudnn: softmax scale is not greater than 0");
  EXPECT_EQ(refusal([](P& p) { p.gpu = Gpu{75, 40}; }), "cudnn: compute capability 7.5, below 8.0");
}

TEST(CudnnPlan, ServesWhatSm90DoesNotWhereTheLibraryIs) {
  PlanSettings settings = Settings();
  settings.backend.clear();
  const Result<std::string> version = kernels::CudnnVersion();
  if (!version.ok()) {
    EXPECT_FALSE(version.error().got.empty());
    const Result<Plan> other = Plan::Create(settings);
    ASSERT_TRUE(other.ok()) << other.error().Message();
    EXPECT_EQ(other->backend(), "cuda");
    EXPECT_EQ(other->choices()[1].reason, version.error().got);
    return;
  }
  EXPECT_EQ(version->substr(0, 2), "9.");
  Result<Plan> plan = Plan::Create(settings);
  ASSERT_TRUE(plan.ok()) << plan.error().Message();
  EXPECT_EQ(plan->backend(), "cudnn");
  EXPECT_EQ(plan->choices()[0].reason, "head_dim is not 128");
  // Q, K, V and O of all rows fit beside the library's own.
  EXPECT_GE(plan->workspace_bytes(), 2 * 364 * (6 + 2) * 64 * 2);
  EXPECT_EQ(plan->workspace_bytes() % 256, 0);
  EXPECT_FALSE(plan->Work(Rows{{0, 0, 64, 0, 64}, {}}).ok());
}

}  // namespace
}  // namespace segue::attention
