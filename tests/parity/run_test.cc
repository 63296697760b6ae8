// Whole runs of the engine from the reference's noise, compared step by step.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "parity/golden.h"
#include "segue/engine.h"

namespace segue::parity {
namespace {

std::unique_ptr<Engine> LoadEngine(const GoldenModel& model, bool reference_kernels = false) {
  auto engine = Engine::Load(
      {.model_directory = model.directory, .threads = 2, .reference_kernels = reference_kernels});
  if (engine.ok()) return std::move(engine).value();
  ADD_FAILURE() << engine.error().Message();
  return nullptr;
}

// The request a recorded run answers.
Request RecordedRequest(const Golden& golden, int number) {
  const std::string run = std::to_string(number);
  const std::vector<int32_t> size = golden.Ints(run + ".size");
  Request request;
  request.prompt = golden.Texts("prompts").at(static_cast<size_t>(number));
  request.negative_prompt = golden.Texts("negatives").at(static_cast<size_t>(number));
  request.width = size.at(0);
  request.height = size.at(1);
  request.steps = golden.Int(run + ".steps");
  request.guidance = golden.Float(run + ".guidance");
  request.latents = golden.Floats(run + ".noise");
  request.keep_stages = true;
  return request;
}

std::map<std::string, std::vector<float>> ByName(const Picture& picture) {
  std::map<std::string, std::vector<float>> stages;
  for (const StageTensor& stage : picture.stages) stages[stage.name] = stage.values;
  return stages;
}

std::string EngineStep(int step) {
  const std::string digits = std::to_string(step);
  return "step." + std::string(3 - digits.size(), '0') + digits + ".";
}

class RunParity : public testing::TestWithParam<GoldenModel> {};

// B093: stages are compared in the order they are made, so that a failure's first line names the
// first stage that differs. Errors accumulate from step to step here; each stage alone is held to
// the tighter bound by StageParity and StepParity.
TEST_P(RunParity, LatentsAndPixels) {
  const Golden golden(GetParam().name + "/runs");
  ASSERT_TRUE(golden.MatchesWeightsOf(GetParam()));
  const std::unique_ptr<Engine> engine = LoadEngine(GetParam());
  ASSERT_NE(engine, nullptr);
  double worst = 0;
  for (int r = 0; r < golden.Int("requests"); ++r) {
    const std::string run = std::to_string(r);
    const Request request = RecordedRequest(golden, r);
    const auto picture = engine->Generate(request);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    const auto stages = ByName(*picture);
    for (const int32_t step : golden.Ints(run + ".kept")) {
      const std::string recorded = run + ".step." + std::to_string(step);
      const std::string made = EngineStep(step);
      EXPECT_LE(
          RelativeError(stages.at(made + "velocity.prompt"), golden.Floats(recorded + ".cond")),
          kTwentyStepBound)
          << "run " << r << ", step " << step << ", velocity of the prompt";
      if (picture->guided) {
        EXPECT_LE(RelativeError(stages.at(made + "velocity.negative"),
                                golden.Floats(recorded + ".uncond")),
                  kTwentyStepBound)
            << "run " << r << ", step " << step << ", velocity of the negative prompt";
      }
      EXPECT_LE(RelativeError(stages.at(made + "latents"), golden.Floats(recorded + ".latents")),
                kTwentyStepBound)
          << "run " << r << ", latents after step " << step;
    }
    const double error = RelativeError(stages.at("final_latents"), golden.Floats(run + ".latents"));
    EXPECT_LE(error, kTwentyStepBound) << "run " << r << ", final latents";
    worst = std::max(worst, error);
    ExpectPixelsNear(picture->image.rgb, golden.Bytes(run + ".pixels"));
  }
  Report(GetParam().name + " latents after a whole run", worst);
}

// B007, B109: guidance is on when the scale is above 1 and a negative prompt is given, even an
// empty one; the reference then ran two forwards a step.
TEST_P(RunParity, BranchesAreThoseTheReferenceRan) {
  const Golden golden(GetParam().name + "/runs");
  const std::unique_ptr<Engine> engine = LoadEngine(GetParam());
  ASSERT_NE(engine, nullptr);
  bool with_guidance = false;
  bool without = false;
  for (int r = 0; r < golden.Int("requests"); ++r) {
    Request request = RecordedRequest(golden, r);
    request.steps = 1;
    const auto picture = engine->Generate(request);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    const int branches = golden.Int(std::to_string(r) + ".forwards");
    EXPECT_EQ(picture->guided, branches == 2) << "run " << r;
    EXPECT_EQ(ByName(*picture).contains("step.000.velocity.negative"), branches == 2);
    EXPECT_EQ(picture->negative_prompt_tokens > 0, branches == 2);
    with_guidance = with_guidance || branches == 2;
    without = without || branches == 1;
  }
  EXPECT_TRUE(with_guidance && without) << "both kinds are recorded";
}

INSTANTIATE_TEST_SUITE_P(Models, RunParity, testing::ValuesIn(Models()), ModelName);

// The plain references give the same pictures as the fast kernels, within the same bounds.
TEST(ReferenceKernels, GiveTheReferencesLatents) {
  const Golden golden("tiny/runs");
  ASSERT_TRUE(golden.MatchesWeightsOf(TinyModel()));
  const std::unique_ptr<Engine> engine = LoadEngine(TinyModel(), true);
  ASSERT_NE(engine, nullptr);
  const auto picture = engine->Generate(RecordedRequest(golden, 0));
  ASSERT_TRUE(picture.ok()) << picture.error().Message();
  const double error =
      RelativeError(ByName(*picture).at("final_latents"), golden.Floats("0.latents"));
  EXPECT_LE(error, kTwentyStepBound);
  ExpectPixelsNear(picture->image.rgb, golden.Bytes("0.pixels"));
  Report("tiny latents after a whole run, reference kernels", error);
}

}  // namespace
}  // namespace segue::parity
