#include "model/dit/batch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace segue::model {
namespace {

DitConfig SmallConfig() {
  DitConfig config;
  config.num_attention_heads = 2;
  config.attention_head_dim = 14;
  config.axes_dims_rope = {2, 4, 8};
  return config;
}

// cos of position * theta^(-2j/d) for every pair of a head, straight from the definition.
std::vector<double> WantedCos(const DitConfig& config, double frame, double row, double column) {
  const double coordinates[] = {frame, row, column};
  std::vector<double> cosines;
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto dim = static_cast<double>(config.axes_dims_rope[axis]);
    for (int64_t j = 0; j < config.axes_dims_rope[axis] / 2; ++j) {
      cosines.push_back(
          std::cos(coordinates[axis] * std::pow(10000.0, -2.0 * static_cast<double>(j) / dim)));
    }
  }
  return cosines;
}

void ExpectPosition(const DitBatch& batch, int32_t position, const std::vector<double>& cosines) {
  const auto pairs = static_cast<int64_t>(cosines.size());
  ASSERT_LT(position, batch.positions());
  for (int64_t j = 0; j < pairs; ++j) {
    const auto index = static_cast<size_t>(position * pairs + j);
    EXPECT_NEAR(batch.cos()[index], cosines[static_cast<size_t>(j)], 1e-5);
    EXPECT_NEAR(batch.sin()[index] * batch.sin()[index] + batch.cos()[index] * batch.cos()[index],
                1.0, 1e-6);
  }
}

TEST(DitBatch, PositionsAreCentredAndTextFollowsTheLargerHalf) {
  const DitConfig config = SmallConfig();
  // 83 x 42: odd sides have one more negative position; 83/2 = 41 is where text begins.
  const auto batch =
      DitBatch::Create(config, {{.text_rows = 3, .grid_height = 83, .grid_width = 42},
                                {.text_rows = 1, .grid_height = 4, .grid_width = 5}});
  ASSERT_TRUE(batch.ok());
  ExpectPosition(*batch, batch->image_position()[0], WantedCos(config, 0, -42, -21));
  ExpectPosition(*batch, batch->image_position()[83 * 42 - 1], WantedCos(config, 0, 40, 20));
  ExpectPosition(*batch, batch->image_position()[83 * 42], WantedCos(config, 0, -2, -3));
  ExpectPosition(*batch, batch->text_position()[0], WantedCos(config, 41, 41, 41));
  ExpectPosition(*batch, batch->text_position()[2], WantedCos(config, 43, 43, 43));
  ExpectPosition(*batch, batch->text_position()[3], WantedCos(config, 2, 2, 2));
}

TEST(DitBatch, NoTableLimitsPositions) {
  // 16 x 65536 pixels: a grid of 1 x 4096, beyond the tables of early versions of the reference.
  const DitConfig config = SmallConfig();
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 4096}, {4096, 1}}) {
    const auto batch =
        DitBatch::Create(config, {{.text_rows = 512, .grid_height = height, .grid_width = width}});
    ASSERT_TRUE(batch.ok());
    ExpectPosition(*batch, batch->text_position()[511], WantedCos(config, 2559, 2559, 2559));
  }
}

TEST(DitBatch, RowsOfEverySequence) {
  const auto batch = DitBatch::Create(
      SmallConfig(), {{.text_rows = 5, .grid_height = 2, .grid_width = 3, .timestep = 0},
                      {.text_rows = 0, .grid_height = 1, .grid_width = 1, .timestep = 1},
                      {.text_rows = 2, .grid_height = 2, .grid_width = 3, .timestep = 1}});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->image_rows(), 13);
  EXPECT_EQ(batch->text_rows(), 7);
  EXPECT_EQ(batch->timesteps(), 2);
  EXPECT_EQ(batch->image_begin(1), 6);
  EXPECT_EQ(batch->image_begin(2), 7);
  EXPECT_EQ(batch->text_begin(2), 5);
  EXPECT_EQ(batch->image_timestep(), (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(batch->text_timestep(), (std::vector<int32_t>{0, 0, 0, 0, 0, 1, 1}));
  // Equal grids share their table rows.
  EXPECT_EQ(batch->image_position()[0], batch->image_position()[7]);
}

TEST(DitBatch, RefusesWhatCannotBe) {
  const DitConfig config = SmallConfig();
  EXPECT_FALSE(DitBatch::Create(config, {}).ok());
  const DitSequence good = {.text_rows = 1, .grid_height = 2, .grid_width = 2};
  for (const auto& spoil : std::vector<void (*)(DitSequence&)>{
           [](DitSequence& s) { s.text_rows = -1; }, [](DitSequence& s) { s.grid_height = 0; },
           [](DitSequence& s) { s.grid_width = -3; }, [](DitSequence& s) { s.timestep = -1; },
           [](DitSequence& s) { s.grid_height = 1 << 15; }}) {
    DitSequence bad = good;
    spoil(bad);
    const auto batch = DitBatch::Create(config, {good, bad});
    ASSERT_FALSE(batch.ok());
    EXPECT_NE(batch.error().argument.find("sequence 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace segue::model
