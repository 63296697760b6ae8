// The engine on the tiny checkpoint of tests/goldens: company, order, threads, errors.
#include "segue/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace segue {
namespace {

std::string TinyModel() { return std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model"; }

std::unique_ptr<Engine> LoadTiny(int threads = 2, bool bf16 = false) {
  auto engine =
      Engine::Load({.model_directory = TinyModel(), .threads = threads, .bf16_rounding = bf16});
  EXPECT_TRUE(engine.ok()) << engine.error().Message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

Request MakeRequest(const std::string& prompt, int width, int height, int steps, uint64_t seed) {
  Request request;
  request.prompt = prompt;
  request.negative_prompt = "blurry";
  request.width = width;
  request.height = height;
  request.steps = steps;
  request.guidance = 3.0;
  request.seed = seed;
  request.keep_stages = true;
  return request;
}

// Steps until nothing runs; the pictures in the order of `ids`.
std::vector<Picture> RunAll(Engine& engine, const std::vector<RequestId>& ids) {
  while (true) {
    const auto report = engine.Step();
    EXPECT_TRUE(report.ok());
    if (!report.ok() || report->advanced.empty()) break;
  }
  std::vector<Picture> pictures;
  for (const RequestId id : ids) {
    auto picture = engine.Take(id);
    EXPECT_TRUE(picture.ok()) << picture.error().Message();
    if (picture.ok()) pictures.push_back(std::move(*picture));
  }
  return pictures;
}

// Every stage and pixel, bit for bit.
void ExpectSame(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.image.rgb, b.image.rgb);
  ASSERT_EQ(a.stages.size(), b.stages.size());
  for (size_t i = 0; i < a.stages.size(); ++i) {
    EXPECT_EQ(a.stages[i].name, b.stages[i].name);
    EXPECT_EQ(a.stages[i].shape, b.stages[i].shape);
    EXPECT_TRUE(a.stages[i].values == b.stages[i].values) << a.stages[i].name;
  }
}

std::vector<Request> ThreeRequests() {
  std::vector<Request> requests = {MakeRequest("a cat", 48, 80, 4, 1),
                                   MakeRequest("a much longer prompt, with a tree", 64, 32, 3, 2),
                                   MakeRequest("", 16, 16, 6, 3)};
  requests[1].guidance = 1.0;
  requests[1].negative_prompt.reset();
  return requests;
}

TEST(Engine, ARequestsBytesDoNotDependOnItsCompany) {
  const auto requests = ThreeRequests();
  std::vector<Picture> alone;
  for (const Request& request : requests) {
    const auto engine = LoadTiny();
    ASSERT_NE(engine, nullptr);
    auto picture = engine->Generate(request);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    alone.push_back(std::move(*picture));
  }
  for (const int threads : {1, 2, 3}) {
    // All join at once, in another order.
    const auto engine = LoadTiny(threads);
    ASSERT_NE(engine, nullptr);
    std::vector<RequestId> ids;
    for (const size_t i : {2, 0, 1}) {
      const auto id = engine->Submit(requests[i]);
      ASSERT_TRUE(id.ok());
      ids.push_back(*id);
    }
    const auto together = RunAll(*engine, {ids[1], ids[2], ids[0]});
    ASSERT_EQ(together.size(), 3u);
    for (size_t i = 0; i < 3; ++i) ExpectSame(together[i], alone[i]);
  }
}

TEST(Engine, RequestsJoinAndLeaveBetweenSteps) {
  const auto requests = ThreeRequests();
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  const auto first = engine->Submit(requests[2]);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(engine->Step().ok());
  const auto second = engine->Submit(requests[0]);
  ASSERT_TRUE(second.ok());
  auto report = engine->Step();
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->advanced.size(), 2u);
  EXPECT_EQ(report->advanced[0].step, 2);
  EXPECT_EQ(report->advanced[1].step, 1);
  const auto third = engine->Submit(requests[1]);
  ASSERT_TRUE(third.ok());
  ASSERT_TRUE(engine->Cancel(*third).ok());
  const auto fourth = engine->Submit(requests[1]);
  ASSERT_TRUE(fourth.ok());
  const auto pictures = RunAll(*engine, {*second, *fourth, *first});
  ASSERT_EQ(pictures.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto other = LoadTiny(1);
    ASSERT_NE(other, nullptr);
    auto alone = other->Generate(requests[i]);
    ASSERT_TRUE(alone.ok());
    ExpectSame(pictures[i], *alone);
  }
}

TEST(Engine, ARequestThatOverflowsDoesNotDisturbTheOthers) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  const Request good = MakeRequest("a cat", 48, 80, 4, 1);
  Request bad = MakeRequest("a dog", 32, 32, 4, 1);
  bad.latents.assign(2 * 2 * 20, 3e38f);
  const auto bad_id = engine->Submit(bad);
  const auto good_id = engine->Submit(good);
  ASSERT_TRUE(bad_id.ok() && good_id.ok());
  const auto report = engine->Step();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->finished, std::vector<RequestId>{*bad_id});
  const auto failed = engine->Take(*bad_id);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kNonFinite);
  EXPECT_NE(failed.error().Message().find("step 1 of 4"), std::string::npos)
      << failed.error().Message();
  const auto pictures = RunAll(*engine, {*good_id});
  ASSERT_EQ(pictures.size(), 1u);
  const auto alone = LoadTiny()->Generate(good);
  ASSERT_TRUE(alone.ok());
  ExpectSame(pictures[0], *alone);
}

TEST(Engine, GuidanceDecidesTheNumberOfBranches) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  struct Case {
    std::optional<double> guidance;
    std::optional<std::string> negative;
    bool guided;
    size_t warnings;
  };
  const double nearly_one = std::nextafter(1.0, 2.0);
  for (const Case& c : std::vector<Case>{{4.0, " ", true, 0},
                                         {4.0, "", true, 0},
                                         {4.0, std::nullopt, true, 1},
                                         {1.0, std::nullopt, false, 0},
                                         {1.0, "blurry", false, 1},
                                         {nearly_one, std::nullopt, false, 0},
                                         {double{1.0000001f}, std::nullopt, false, 0},
                                         {1.00001, " ", true, 0},
                                         {0.0, std::nullopt, false, 0},
                                         {-2.0, std::nullopt, false, 0}}) {
    Request request = MakeRequest("a cat", 16, 16, 1, 1);
    request.guidance = c.guidance;
    request.negative_prompt = c.negative;
    const auto picture = engine->Generate(request);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    EXPECT_EQ(picture->guided, c.guided) << *c.guidance;
    EXPECT_EQ(picture->warnings.size(), c.warnings) << *c.guidance;
    EXPECT_EQ(picture->negative_prompt_tokens > 0, c.guided);
    EXPECT_EQ(picture->negative_prompt, c.guided ? c.negative.value_or(" ") : "");
  }
}

TEST(Engine, EmptyAndOverlongPromptsMakePictures) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest("", 16, 16, 2, 5);
  request.negative_prompt = "";
  auto picture = engine->Generate(request);
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(picture->prompt_tokens, 5);  // the template's suffix
  EXPECT_TRUE(picture->warnings.empty());
  for (int i = 0; i < 600; ++i) request.prompt += "word ";
  picture = engine->Generate(request);
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(picture->prompt_tokens, 512);
  ASSERT_EQ(picture->warnings.size(), 1u);
  EXPECT_NE(picture->warnings[0].find("first 512"), std::string::npos) << picture->warnings[0];
}

TEST(Engine, DefaultsAreUsedAndEchoed) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  Request request;
  request.prompt = "a cat";
  request.seed = std::numeric_limits<uint64_t>::max();
  const auto picture = engine->Generate(request);
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(picture->image.width, engine->defaults().width);
  EXPECT_EQ(picture->image.height, engine->defaults().height);
  EXPECT_EQ(picture->steps, engine->defaults().steps);
  EXPECT_EQ(picture->guidance, engine->defaults().guidance);
  EXPECT_EQ(picture->seed, request.seed);
  EXPECT_EQ(picture->image.rgb.size(),
            static_cast<size_t>(picture->image.width * picture->image.height * 3));
  EXPECT_FALSE(picture->kernels.empty());
  EXPECT_GT(picture->times.denoise_s, 0.0);
  EXPECT_TRUE(picture->stages.empty());
}

TEST(Engine, KernelsAreCountedARequest) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  const Request request = MakeRequest("a cat", 32, 32, 2, 1);
  const auto first = engine->Generate(request);
  const auto second = engine->Generate(request);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(first->kernels.size(), second->kernels.size());
  for (size_t i = 0; i < first->kernels.size(); ++i) {
    EXPECT_EQ(first->kernels[i].op, second->kernels[i].op);
    EXPECT_EQ(first->kernels[i].calls, second->kernels[i].calls) << first->kernels[i].op;
  }
  const auto plain =
      Engine::Load({.model_directory = TinyModel(), .threads = 1, .reference_kernels = true});
  ASSERT_TRUE(plain.ok());
  const auto reference = (*plain)->Generate(request);
  ASSERT_TRUE(reference.ok());
  for (const KernelUse& use : reference->kernels) {
    EXPECT_TRUE(use.kernel == "ref" || use.kernel == "composed") << use.op << " " << use.kernel;
  }
}

TEST(Engine, ProgressCountsStepsAndFalseCancels) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  const Request request = MakeRequest("a cat", 32, 32, 5, 1);
  std::vector<int> steps;
  ASSERT_TRUE(engine
                  ->Generate(request,
                             [&](const Progress& progress) {
                               EXPECT_EQ(progress.steps, 5);
                               steps.push_back(progress.step);
                               return true;
                             })
                  .ok());
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4, 5}));
  const auto stopped =
      engine->Generate(request, [](const Progress& progress) { return progress.step < 2; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  // Nothing is left running, and the next request is as good as any.
  const auto report = engine->Step();
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->advanced.empty());
  EXPECT_TRUE(engine->Generate(request).ok());
}

TEST(Engine, TheSeedIsTheNoiseAndGivenLatentsReplaceIt) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  const auto picture = engine->Generate(MakeRequest("a cat", 32, 48, 3, 9));
  ASSERT_TRUE(picture.ok());
  Request request = MakeRequest("a cat", 32, 48, 3, 10);
  const auto other = engine->Generate(request);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->image.rgb, picture->image.rgb);
  for (const StageTensor& stage : picture->stages) {
    if (stage.name == "noise") request.latents = stage.values;
  }
  ASSERT_EQ(request.latents.size(), 2u * 3u * 20u);
  const auto again = engine->Generate(request);
  ASSERT_TRUE(again.ok());
  ExpectSame(*again, *picture);
}

TEST(Engine, ValidateSaysWhatSubmitWould) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(engine->Validate(MakeRequest("a cat", 16, 16, 2, 1)).ok());
  struct Case {
    void (*spoil)(Request&);
    const char* argument;
  };
  for (const Case& c :
       std::vector<Case>{{[](Request& r) {
                            r.prompt =
                                "a\xff"
                                "cat";
                          },
                          "prompt"},
                         {[](Request& r) { r.negative_prompt = "\xc3"; }, "negative prompt"},
                         {[](Request& r) { r.width = 100; }, "width"},
                         {[](Request& r) { r.steps = 0; }, "steps"},
                         {[](Request& r) { r.latents = {1.0f}; }, "latents"}}) {
    Request request = MakeRequest("a cat", 16, 16, 2, 1);
    c.spoil(request);
    const Status status = engine->Validate(request);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().argument.rfind(c.argument, 0), 0u) << status.error().Message();
    const auto id = engine->Submit(request);
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().Message(), status.error().Message());
  }
}

TEST(Engine, UnknownIdsAreErrors) {
  const auto engine = LoadTiny();
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->Take(1).ok());
  EXPECT_FALSE(engine->Cancel(1).ok());
  const auto id = engine->Submit(MakeRequest("a cat", 16, 16, 2, 1));
  ASSERT_TRUE(id.ok());
  const auto early = engine->Take(*id);
  ASSERT_FALSE(early.ok());
  EXPECT_NE(early.error().Message().find("still running"), std::string::npos);
  EXPECT_TRUE(engine->Cancel(*id).ok());
  EXPECT_FALSE(engine->Cancel(*id).ok());
}

TEST(Engine, BadOptionsAndDirectoriesAreErrors) {
  EXPECT_FALSE(Engine::Load({.model_directory = "/nowhere"}).ok());
  const auto engine = Engine::Load({.model_directory = TinyModel(), .threads = -1});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().argument, "threads");
}

TEST(Engine, AnAttentionBackEndMayBeChosenAmongThoseAdmitted) {
  const auto error = [](const std::string& backend) {
    const auto engine =
        Engine::Load({.model_directory = TinyModel(), .threads = 1, .attention_backend = backend});
    return engine.ok() ? std::string() : engine.error().Message();
  };
  EXPECT_NE(error("fa3").find("backend: got fa3, wanted one of"), std::string::npos);
  EXPECT_NE(error("sm90").find("sm90: works on device memory only"), std::string::npos);

  auto engine =
      Engine::Load({.model_directory = TinyModel(), .threads = 1, .attention_backend = "ref"});
  ASSERT_TRUE(engine.ok()) << engine.error().Message();
  const Result<RequestId> id = (*engine)->Submit(MakeRequest("x", 32, 32, 1, 1));
  ASSERT_TRUE(id.ok());
  const std::vector<Picture> pictures = RunAll(**engine, {*id});
  ASSERT_EQ(pictures.size(), 1u);
  bool reference = false;
  for (const KernelUse& use : pictures[0].kernels) {
    reference = reference || (use.op == "attention" && use.kernel == "ref");
  }
  EXPECT_TRUE(reference);
}

TEST(Engine, BFloat16ModeIsCloseAndIsBFloat16) {
  const Request request = MakeRequest("a cat", 48, 48, 3, 4);
  const auto exact = LoadTiny()->Generate(request);
  const auto rounded = LoadTiny(2, true)->Generate(request);
  ASSERT_TRUE(exact.ok() && rounded.ok());
  ASSERT_EQ(exact->stages.size(), rounded->stages.size());
  for (size_t i = 0; i < exact->stages.size(); ++i) {
    const StageTensor& a = exact->stages[i];
    const StageTensor& b = rounded->stages[i];
    if (a.name.find("latents") == std::string::npos) continue;
    double difference = 0, norm = 0;
    for (size_t k = 0; k < a.values.size(); ++k) {
      difference += std::pow(double{a.values[k]} - b.values[k], 2);
      norm += std::pow(double{a.values[k]}, 2);
      EXPECT_EQ(b.values[k], RoundToBF16(b.values[k]));
    }
    EXPECT_LT(std::sqrt(difference / norm), 0.05) << a.name;
  }
}

TEST(Engine, OnTheCpuNoSchedulesAreNamed) {
  const auto engine = Engine::Load({.model_directory = TinyModel(), .schedules = {{.steps = 4}}});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(engine.error().argument, "schedules");
  EXPECT_EQ(LoadTiny()->memory()->planned, 0);
}

}  // namespace
}  // namespace segue
