// What an engine that keeps no modulation weights lets through.
#include "runtime/named_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace segue::runtime {
namespace {

class NamedSchedulesTest : public testing::Test {
 protected:
  Result<NamedSchedules> Resolve(const std::vector<ScheduleName>& names) const {
    return NamedSchedules::Resolve(names, defaults_, config_, 64);
  }
  Status Check(const NamedSchedules& named, int steps, int width, int height) const {
    const Request request = {.width = width, .height = height, .steps = steps};
    const auto settings = ResolveSettings(request, defaults_, 64);
    const auto schedule = MakeNoiseSchedule(config_, steps, settings->image_rows());
    return named.Check(*settings, *schedule);
  }

  ModelDefaults defaults_ = {.width = 128, .height = 128, .steps = 20};
  FlowMatchConfig config_ = {.use_dynamic_shifting = true};
};

TEST_F(NamedSchedulesTest, RefusesOthersAndSaysWhatThereIs) {
  const auto named = Resolve({{}, {.steps = 4, .width = 64, .height = 256}});
  ASSERT_TRUE(named.ok()) << named.error().Message();
  EXPECT_TRUE(Check(*named, 20, 128, 128).ok());
  EXPECT_TRUE(Check(*named, 4, 64, 256).ok());
  // As many tokens make the same schedule.
  EXPECT_TRUE(Check(*named, 20, 64, 256).ok());
  const Status refused = Check(*named, 21, 128, 128);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().argument, "schedule");
  EXPECT_EQ(refused.error().got, "21 steps at 128x128");
  EXPECT_NE(refused.error().wanted.find("20 steps at 128x128, 4 steps at 64x256"),
            std::string::npos);
  EXPECT_FALSE(Check(*named, 20, 512, 512).ok());
}

TEST_F(NamedSchedulesTest, TimestepsAreThereOnce) {
  const auto one = Resolve({{}});
  const auto twice = Resolve({{}, {}});
  ASSERT_TRUE(one.ok() && twice.ok());
  EXPECT_EQ(one->timesteps().size(), 20u);
  EXPECT_EQ(one->timesteps(), twice->timesteps());
  EXPECT_TRUE(std::is_sorted(one->timesteps().begin(), one->timesteps().end()));
  const auto none = Resolve({});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

TEST_F(NamedSchedulesTest, WhatNoRequestMayAskForIsRefused) {
  const auto steps = Resolve({{.steps = 1001}});
  ASSERT_FALSE(steps.ok());
  EXPECT_EQ(steps.error().argument, "steps");
  EXPECT_FALSE(Resolve({{.width = 100}}).ok());
}

}  // namespace
}  // namespace segue::runtime
