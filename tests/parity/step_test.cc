// The arithmetic of a step around the transformer: guidance and the Euler step.
#include <gtest/gtest.h>

#include "device/thread_pool.h"
#include "kernels/euler_step.h"
#include "kernels/guidance.h"
#include "model/weights/checkpoint.h"
#include "parity/golden.h"
#include "runtime/noise_schedule.h"

namespace segue::parity {
namespace {

struct RecordedStep {
  std::vector<float> input, cond, uncond, latents;  // uncond empty: no guidance
};

RecordedStep ReadStep(const Golden& golden, const std::string& prefix) {
  RecordedStep step;
  step.input = golden.Floats(prefix + ".input");
  step.cond = golden.Floats(prefix + ".cond");
  if (golden.Has(prefix + ".uncond")) step.uncond = golden.Floats(prefix + ".uncond");
  step.latents = golden.Floats(prefix + ".latents");
  return step;
}

class StepParity : public testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override {
    auto checkpoint = model::Checkpoint::Open(GetParam().directory);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    channels_ = checkpoint->dit_config().in_channels;
    schedule_config_ = checkpoint->flow_match_config();
  }

  // The latents after the step, from the recorded latents before it and velocities.
  std::vector<float> Advance(RecordedStep step, double guidance, float dt,
                             kernels::Rounding rounding) const {
    ThreadPool pool(1);
    const kernels::Context context{.stream = Stream::Cpu(pool)};
    const auto rows = static_cast<int64_t>(step.input.size()) / channels_;
    const MatrixView x = ContiguousMatrix(step.input.data(), rows, channels_);
    const MatrixView cond = ContiguousMatrix(step.cond.data(), rows, channels_);
    if (!step.uncond.empty()) {
      const Status guided =
          kernels::Guidance({.cond = cond,
                             .negative = ContiguousMatrix(step.uncond.data(), rows, channels_),
                             .y = cond,
                             .scale = static_cast<float>(guidance),
                             .rounding = rounding},
                            context);
      EXPECT_TRUE(guided.ok()) << guided.error().Message();
    }
    const Status stepped =
        kernels::EulerStep({.x = x, .v = cond, .dt = dt, .rounding = rounding}, context);
    EXPECT_TRUE(stepped.ok()) << stepped.error().Message();
    return step.input;
  }

  float StepWidth(int steps, const std::vector<int32_t>& size, int step) const {
    const int64_t rows = int64_t{size[0] / 16} * (size[1] / 16);
    const auto schedule = runtime::MakeNoiseSchedule(schedule_config_, steps, rows);
    EXPECT_TRUE(schedule.ok());
    return schedule->sigmas[step + 1] - schedule->sigmas[step];
  }

  int64_t channels_ = 0;
  FlowMatchConfig schedule_config_;
};

TEST_P(StepParity, GuidanceAndEulerStepInFloat32) {
  const Golden golden(GetParam().name + "/runs");
  const int requests = golden.Int("requests");
  ASSERT_GT(requests, 0);
  double worst = 0;
  for (int r = 0; r < requests; ++r) {
    const std::string prefix = std::to_string(r);
    const std::vector<int32_t> size = golden.Ints(prefix + ".size");
    ASSERT_EQ(size.size(), 2u);
    for (const int32_t kept : golden.Ints(prefix + ".kept")) {
      const RecordedStep step = ReadStep(golden, prefix + ".step." + std::to_string(kept));
      const float dt = StepWidth(golden.Int(prefix + ".steps"), size, kept);
      const std::vector<float> latents =
          Advance(step, golden.Float(prefix + ".guidance"), dt, kernels::Rounding::kNone);
      const double error = RelativeError(latents, step.latents);
      EXPECT_LE(error, kStageBound) << "request " << r << ", step " << kept;
      worst = std::max(worst, error);
    }
  }
  Report(GetParam().name + " guidance and Euler step", worst);
}

// Every rounding of the bfloat16 reference is reproduced. What may differ is the order in which a
// token's norm is summed, which now and then moves a norm to the neighbouring bfloat16: its row
// then differs by up to one unit in the last place of the product.
TEST_P(StepParity, GuidanceAndEulerStepInBFloat16) {
  const Golden golden(GetParam().name + "/bf16");
  const std::vector<int32_t> size = golden.Ints("run.size");
  ASSERT_EQ(size.size(), 2u);
  int64_t values = 0;
  int64_t different = 0;
  for (const int32_t kept : golden.Ints("run.kept")) {
    const RecordedStep step = ReadStep(golden, "run.step." + std::to_string(kept));
    const float dt = StepWidth(golden.Int("run.steps"), size, kept);
    const std::vector<float> latents =
        Advance(step, golden.Float("run.guidance"), dt, kernels::Rounding::kBF16);
    ASSERT_EQ(latents.size(), step.latents.size());
    for (size_t i = 0; i < latents.size(); ++i) {
      ++values;
      if (latents[i] == step.latents[i]) continue;
      ++different;
      EXPECT_NEAR(latents[i], step.latents[i], 0.02f) << "step " << kept << ", value " << i;
    }
  }
  ASSERT_GT(values, 1000);
  EXPECT_LE(different, values / 100) << "of " << values;
  Report(GetParam().name + " bfloat16 step, share of values that differ",
         static_cast<double>(different) / static_cast<double>(values));
}

INSTANTIATE_TEST_SUITE_P(Models, StepParity, testing::ValuesIn(Models()), ModelName);

}  // namespace
}  // namespace segue::parity
