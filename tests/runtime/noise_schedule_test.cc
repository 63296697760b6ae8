#include "runtime/noise_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/golden_schedules.h"

namespace segue::runtime {
namespace {

FlowMatchConfig QwenImageConfig() {
  FlowMatchConfig config;
  config.num_train_timesteps = 1000;
  config.shift = 1.0;
  config.use_dynamic_shifting = true;
  config.base_shift = 0.5;
  config.max_shift = 0.9;
  config.base_image_seq_len = 256;
  config.max_image_seq_len = 8192;
  config.shift_terminal = 0.02;
  config.time_shift = TimeShift::kExponential;
  return config;
}

TEST(NoiseSchedule, AgreesWithDiffusersToTheBit) {
  for (const GoldenSchedule& golden : GoldenSchedules()) {
    const auto schedule = MakeNoiseSchedule(QwenImageConfig(), golden.steps, golden.image_rows);
    ASSERT_TRUE(schedule.ok()) << schedule.error().Message();
    EXPECT_EQ(schedule->mu, golden.mu);
    ASSERT_EQ(schedule->sigmas.size(), golden.sigmas.size() + 1);
    ASSERT_EQ(schedule->timesteps.size(), golden.sigmas.size());
    for (size_t i = 0; i < golden.sigmas.size(); ++i) {
      EXPECT_EQ(schedule->sigmas[i], golden.sigmas[i]) << golden.steps << " steps, step " << i;
      EXPECT_EQ(schedule->timesteps[i], golden.sigmas[i] * 1000.0f);
    }
    EXPECT_EQ(schedule->sigmas.back(), 0.0f);
  }
}

TEST(NoiseSchedule, AgreesWithThePublishedFigures) {
  const auto schedule = MakeNoiseSchedule(QwenImageConfig(), 50, 4096);
  ASSERT_TRUE(schedule.ok());
  EXPECT_NEAR(schedule->sigmas[1], .989701f, 1e-6);
  EXPECT_NEAR(schedule->sigmas[25], .660086f, 1e-6);
  EXPECT_NEAR(schedule->sigmas[49], .02f, 1e-6);
  EXPECT_DOUBLE_EQ(ResolutionShift(QwenImageConfig(), 6032), 0.7911290322580645);
  EXPECT_DOUBLE_EQ(ResolutionShift(QwenImageConfig(), 6889), 0.8343245967741936);
}

TEST(NoiseSchedule, EveryStepCountAndSizeFallsFromOneToZero) {
  for (const int64_t rows : {1, 16, 64, 3486, 4096, 65536}) {
    for (const int steps : {1, 2, 3, 20, 999, 1000}) {
      const auto schedule = MakeNoiseSchedule(QwenImageConfig(), steps, rows);
      ASSERT_TRUE(schedule.ok()) << schedule.error().Message();
      EXPECT_EQ(schedule->steps(), steps);
      EXPECT_EQ(schedule->sigmas.front(), 1.0f);
      EXPECT_EQ(schedule->sigmas.back(), 0.0f);
      const float last = steps > 1 ? 0.02f : 1.0f;
      EXPECT_NEAR(schedule->sigmas[static_cast<size_t>(steps - 1)], last, 1e-6f);
    }
  }
}

TEST(NoiseSchedule, EveryKindOfShift) {
  FlowMatchConfig config = QwenImageConfig();
  config.shift_terminal.reset();
  config.time_shift = TimeShift::kLinear;
  auto schedule = MakeNoiseSchedule(config, 4, 4096);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->sigmas,
            (std::vector<float>{1.0f, 0x1.59cd12p-1f, 0x1.a35a34p-2f, 0x1.808f16p-3f, 0.0f}));

  config.use_dynamic_shifting = false;
  config.shift = 7.0;
  schedule = MakeNoiseSchedule(config, 4, 4096);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->sigmas,
            (std::vector<float>{1.0f, 0x1.e8ba2ep-1f, 0x1.cp-1f, 0x1.666666p-1f, 0.0f}));
}

TEST(NoiseSchedule, RefusesStepsOutsideTheRange) {
  for (const int steps : {-1, 0, 1001, std::numeric_limits<int>::max()}) {
    const auto schedule = MakeNoiseSchedule(QwenImageConfig(), steps, 64);
    ASSERT_FALSE(schedule.ok());
    EXPECT_EQ(schedule.error().argument, "steps");
    EXPECT_EQ(schedule.error().got, std::to_string(steps));
    EXPECT_EQ(schedule.error().wanted, "1..1000");
  }
  EXPECT_FALSE(MakeNoiseSchedule(QwenImageConfig(), 4, 0).ok());
}

TEST(NoiseSchedule, RefusesAConfigurationWhoseSigmasDoNotFall) {
  FlowMatchConfig config = QwenImageConfig();
  config.max_shift = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(MakeNoiseSchedule(config, 4, 64).ok());
  config = QwenImageConfig();
  config.max_image_seq_len = config.base_image_seq_len;  // a line through one point
  EXPECT_FALSE(MakeNoiseSchedule(config, 4, 64).ok());
}

// bf(bf(1000 sigma) / 1000) for 50 steps at 1024x1024, as the bfloat16 pipeline feeds them.
TEST(ModelTimestep, RoundsTwiceInBFloat16) {
  const std::vector<float> want = {
      1,           .98828125,   .98046875, .96875,     .95703125,  .94921875,  .9375,
      .92578125,   .91015625,   .8984375,  .88671875,  .87109375,  .859375,    .84765625,
      .8359375,    .8203125,    .8046875,  .79296875,  .77734375,  .76171875,  .7421875,
      .7265625,    .7109375,    .6953125,  .67578125,  .66015625,  .640625,    .625,
      .60546875,   .5859375,    .5625,     .5390625,   .51953125,  .498046875, .474609375,
      .44921875,   .42578125,   .40234375, .373046875, .34765625,  .3203125,   .29296875,
      .26171875,   .2314453125, .19921875, .166015625, .130859375, .095703125, .05859375,
      .02001953125};
  const auto schedule = MakeNoiseSchedule(QwenImageConfig(), 50, 4096);
  ASSERT_TRUE(schedule.ok());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(ModelTimestep(schedule->timesteps[i], true), want[i]) << i;
    EXPECT_EQ(ModelTimestep(schedule->timesteps[i], false), schedule->timesteps[i] / 1000.0f);
  }
}

}  // namespace
}  // namespace segue::runtime
