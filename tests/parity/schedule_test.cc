// Sigmas, timesteps and what the transformer is fed, against the reference's own scheduler.
#include <gtest/gtest.h>

#include "model/weights/checkpoint.h"
#include "parity/golden.h"
#include "runtime/noise_schedule.h"

namespace segue::parity {
namespace {

class ScheduleParity : public testing::TestWithParam<GoldenModel> {};

// The schedule is float64 and float32 arithmetic in a fixed order, so it agrees exactly.
TEST_P(ScheduleParity, EqualsTheReferenceToTheLastBit) {
  const Golden golden(GetParam().name + "/schedule");
  const auto checkpoint = model::Checkpoint::Open(GetParam().directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  const std::vector<int32_t> sizes = golden.Ints("sizes");
  const std::vector<int32_t> step_counts = golden.Ints("steps");
  ASSERT_EQ(sizes.size(), 16u);
  ASSERT_EQ(step_counts.size(), 5u);
  for (size_t i = 0; i < sizes.size(); i += 2) {
    const int64_t rows = int64_t{sizes[i] / 16} * (sizes[i + 1] / 16);
    for (const int steps : step_counts) {
      const std::string name = std::to_string(sizes[i]) + "x" + std::to_string(sizes[i + 1]) + "." +
                               std::to_string(steps);
      const auto schedule =
          runtime::MakeNoiseSchedule(checkpoint->flow_match_config(), steps, rows);
      ASSERT_TRUE(schedule.ok()) << name << ": " << schedule.error().Message();
      EXPECT_EQ(schedule->sigmas, golden.Floats(name + ".sigmas")) << name;
      EXPECT_EQ(schedule->timesteps, golden.Floats(name + ".timesteps")) << name;
      std::vector<float> fed;
      std::vector<float> fed_bf16;
      for (const float timestep : schedule->timesteps) {
        fed.push_back(runtime::ModelTimestep(timestep, false));
        fed_bf16.push_back(runtime::ModelTimestep(timestep, true));
      }
      EXPECT_EQ(fed, golden.Floats(name + ".fed")) << name;
      EXPECT_EQ(fed_bf16, golden.Floats(name + ".fed_bf16")) << name;
    }
  }
}

// B116: every schedule falls from 1 (at most) to 0 whatever the step count and the size, and the
// last level before 0 is the configured one.
TEST_P(ScheduleParity, FallsForEveryStepCountAndSize) {
  const auto checkpoint = model::Checkpoint::Open(GetParam().directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  const FlowMatchConfig& config = checkpoint->flow_match_config();
  ASSERT_TRUE(config.shift_terminal.has_value());
  for (const int64_t rows : {1, 2, 16, 64, 4096, 6889}) {
    for (int steps = 2; steps <= 128; ++steps) {
      const auto schedule = runtime::MakeNoiseSchedule(config, steps, rows);
      ASSERT_TRUE(schedule.ok()) << rows << " rows, " << steps << " steps";
      ASSERT_EQ(schedule->steps(), steps);
      EXPECT_EQ(schedule->sigmas.front(), 1.0f);
      EXPECT_EQ(schedule->sigmas.back(), 0.0f);
      EXPECT_NEAR(schedule->sigmas[steps - 1], *config.shift_terminal, 1e-6);
      for (int i = 0; i < steps; ++i) {
        ASSERT_LT(schedule->sigmas[i + 1], schedule->sigmas[i])
            << rows << " rows, step " << i << " of " << steps;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ScheduleParity, testing::ValuesIn(Models()), ModelName);

}  // namespace
}  // namespace segue::parity
