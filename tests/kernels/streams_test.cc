// Operations over several streams or requests at once against the plain ones they are made of.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/euler_step.h"
#include "kernels/gate_residual.h"
#include "kernels/guidance.h"
#include "kernels/heads.h"
#include "kernels/layer_norm.h"
#include "kernels/modulated_norm.h"
#include "kernels/row_index.h"
#include "kernels/sampler_step.h"
#include "kernels/test_support.h"

namespace segue::kernels {
namespace {

class Streams : public testing::Test {
 protected:
  ThreadPool pool_{2};
  Context context_{.stream = Stream::Cpu(pool_)};
};

TEST_F(Streams, ModulatedNormIsGateResidualThenLayerNorm) {
  const std::vector<int32_t> index = {1, 0, 1, 1, 0};
  Matrix table = RandomMatrix(2, 120, 0, 1);  // gate | scale | shift of two requests
  const auto slice = [&](int64_t part) {
    return RowTable{.data = table.data.data() + part * 40,
                    .rows = 2,
                    .stride = table.stride,
                    .index = index.data()};
  };
  for (const Rounding rounding : {Rounding::kNone, Rounding::kBF16, Rounding::kBF16Once}) {
    Matrix h[2] = {RandomMatrix(5, 40, 3, 2), RandomMatrix(3, 40, 0, 3)};
    Matrix branch[2] = {RandomMatrix(5, 40, 0, 4), RandomMatrix(3, 40, 5, 5)};
    Matrix want_h[2] = {h[0], h[1]};
    Matrix want[2] = {branch[0], branch[1]};
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(GateResidual({.y = branch[i].View(),
                                .gate = slice(0),
                                .h = want_h[i].View(),
                                .rounding = rounding},
                               context_)
                      .ok());
      ASSERT_TRUE(LayerNorm({.x = want_h[i].View(),
                             .y = want[i].View(),
                             .scale = slice(1),
                             .shift = slice(2),
                             .rounding = rounding},
                            context_)
                      .ok());
    }
    std::vector<ModulatedNormStream> streams;
    for (int i = 0; i < 2; ++i) {
      streams.push_back({.branch = branch[i].View(),
                         .gate = slice(0),
                         .h = h[i].View(),
                         .scale = slice(1),
                         .shift = slice(2),
                         .y = branch[i].View()});
    }
    ASSERT_TRUE(ModulatedNorm({.streams = streams, .rounding = rounding}, context_).ok());
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(SameBits(h[i].data, want_h[i].data)) << i;
      EXPECT_TRUE(SameBits(branch[i].data, want[i].data)) << i;
    }
  }
}

TEST_F(Streams, ModulatedNormRefusesWhatDoesNotFit) {
  Matrix h = RandomMatrix(2, 8, 0, 1);
  Matrix table = RandomMatrix(1, 8, 0, 2);
  const RowTable row = {.data = table.data.data(), .rows = 1, .stride = 8};
  const ModulatedNormStream good = {.h = h.View(), .scale = row, .shift = row, .y = h.View()};
  const auto run = [&](const std::vector<ModulatedNormStream>& streams) {
    return ModulatedNorm({.streams = streams}, context_);
  };
  EXPECT_EQ(run({good, good, good}).error().argument, "streams");
  ModulatedNormStream bad = good;
  bad.scale = {};
  EXPECT_EQ(run({bad}).error().argument, "scale");
  bad = good;
  bad.branch = h.View();
  EXPECT_EQ(run({bad}).error().argument, "gate");
  bad.branch.rows = 1;
  EXPECT_EQ(run({bad}).error().argument, "branch");
}

TEST_F(Streams, HeadsAreNormalisedAndTurnedEach) {
  Matrix image = RandomMatrix(4, 3 * 16, 0, 1);  // q | k | v of two heads of 8
  Matrix text = RandomMatrix(2, 3 * 16, 2, 2);
  Matrix angles = RandomMatrix(5, 8, 0, 3);  // cos | sin are halves of it
  const Weight q_weight = RandomWeight(DType::kBF16, {8}, 4);
  const Weight k_weight = RandomWeight(DType::kBF16, {8}, 5);
  const std::vector<int32_t> position = {4, 0, 3, 1};
  const RopeTable rope = {
      .cos = angles.data.data(), .sin = angles.data.data() + 20, .positions = 5};
  Matrix want_image = image;
  Matrix want_text = text;
  const auto turn = [&](const MatrixView& x, const WeightView& weight) {
    RopeTable indexed = rope;
    indexed.index = position.data();
    return QkNormRope({.x = x, .head_dim = 8, .weight = weight, .rope = indexed}, context_);
  };
  ASSERT_TRUE(turn(want_image.View().Cols(0, 16), q_weight.view).ok());
  ASSERT_TRUE(turn(want_image.View().Cols(16, 16), k_weight.view).ok());
  ASSERT_TRUE(turn(want_text.View().Cols(16, 16), k_weight.view).ok());  // no queries there

  const std::vector<HeadsStream> streams = {
      {.q = image.View().Cols(0, 16),
       .k = image.View().Cols(16, 16),
       .q_weight = q_weight.view,
       .k_weight = k_weight.view,
       .position = position.data()},
      {.k = text.View().Cols(16, 16), .k_weight = k_weight.view, .position = position.data()}};
  ASSERT_TRUE(PrepareHeads({.streams = streams, .head_dim = 8, .rope = rope}, context_).ok());
  EXPECT_TRUE(SameBits(image.data, want_image.data));
  EXPECT_TRUE(SameBits(text.data, want_text.data));
}

TEST_F(Streams, SamplerStepServesEveryRequest) {
  Matrix velocity = RandomMatrix(7, 8, 1, 1);
  Matrix latents = RandomMatrix(7, 8, 0, 2);
  for (int64_t i = 0; i < 3 * 8; ++i) latents.data[24 + i] = latents.data[i];  // rows 3..5 = 0..2
  // Rows 0..2 with the prompt, 3..5 with the negative one; row 6 is a request of its own.
  const std::vector<SamplerRecord> records = {
      {.prompt_row = 0, .negative_row = 3, .rows = 3, .guidance = 4.0f, .dt = -0.25f},
      {.prompt_row = 6, .rows = 1, .dt = -0.5f}};
  Matrix want_velocity = velocity;
  Matrix want = latents;
  ASSERT_TRUE(Guidance({.cond = want_velocity.View().Rows(0, 3),
                        .negative = want_velocity.View().Rows(3, 3),
                        .y = want_velocity.View().Rows(0, 3),
                        .scale = 4.0f},
                       context_)
                  .ok());
  const auto euler = [&](int64_t begin, int64_t rows, float dt) {
    return EulerStep(
        {.x = want.View().Rows(begin, rows), .v = want_velocity.View().Rows(begin, rows), .dt = dt},
        context_);
  };
  ASSERT_TRUE(euler(0, 3, -0.25f).ok());
  ASSERT_TRUE(euler(6, 1, -0.5f).ok());
  for (int64_t i = 0; i < 3 * 8; ++i) want.data[24 + i] = want.data[i];

  std::vector<int32_t> not_finite = {-1, -1};
  const auto step = [&] {
    return SamplerStep({.velocity = velocity.View(),
                        .latents = latents.View(),
                        .records = records.data(),
                        .count = 2,
                        .max_rows = 3,
                        .not_finite = not_finite.data()},
                       context_);
  };
  ASSERT_TRUE(step().ok());
  EXPECT_TRUE(SameBits(velocity.data, want_velocity.data));
  EXPECT_TRUE(SameBits(latents.data, want.data));
  EXPECT_EQ(not_finite, (std::vector<int32_t>{0, 0}));

  velocity.data[4 * 9 + 2] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(not_finite, (std::vector<int32_t>{kNegativeVelocityNotFinite | kLatentsNotFinite, 0}));
}

TEST_F(Streams, SamplerStepRefusesRowsOutside) {
  Matrix velocity = RandomMatrix(4, 8, 0, 1);
  Matrix latents = RandomMatrix(4, 8, 0, 2);
  int32_t not_finite = 0;
  for (const SamplerRecord& record : std::vector<SamplerRecord>{
           {.prompt_row = 2, .rows = 3}, {.negative_row = 4, .rows = 1}, {.rows = -1}}) {
    EXPECT_EQ(SamplerStep({.velocity = velocity.View(),
                           .latents = latents.View(),
                           .records = &record,
                           .count = 1,
                           .max_rows = 4,
                           .not_finite = &not_finite},
                          context_)
                  .error()
                  .argument,
              "records");
  }
}

TEST_F(Streams, RowIndexSpreadsTheSlotsEntries) {
  const std::vector<int32_t> slot = {0, 0, 2, 1};
  const std::vector<int32_t> entry = {7, 5, 9};
  std::vector<int32_t> index(4, -1);
  const auto run = [&](int32_t slots) {
    return RowIndex({.slot = slot.data(),
                     .entry = entry.data(),
                     .slots = slots,
                     .index = index.data(),
                     .count = 4},
                    context_);
  };
  ASSERT_TRUE(run(3).ok());
  EXPECT_EQ(index, (std::vector<int32_t>{7, 7, 9, 5}));
  EXPECT_EQ(run(2).error().argument, "slot");
}

}  // namespace
}  // namespace segue::kernels
