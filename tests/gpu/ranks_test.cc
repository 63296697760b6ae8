// Pictures that GPUs make together. Skipped with fewer than two of them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "device/gpu.h"
#include "gpu/engine_rig.h"
#include "segue/attention_plan.h"
#include "segue/engine.h"

namespace segue {
namespace {

class RanksGpu : public EmojiEngine {
 protected:
  void SetUp() override {
    EmojiEngine::SetUp();
    if (IsSkipped()) return;
    const auto gpus = CudaDevices();
    gpus_ = gpus.ok() ? static_cast<int>(gpus->size()) : 0;
    if (gpus_ < 2) GTEST_SKIP() << "fewer than two GPUs";
  }

  using EmojiEngine::Draw;
  static Picture Draw(const EngineOptions& options, const Request& request) {
    const auto engine = LoadOnGpu(options);
    return engine ? Draw(*engine, request) : Picture{};
  }

  int gpus_ = 0;
};

TEST_F(RanksGpu, PicturesAreOneGpusButForTheOrderOfSums) {
  const Request request = Wish("red apple", 128, 128, 12, 4);
  const Picture one = Draw({}, request);
  for (const int ranks : {2, 3, 6}) {
    if (ranks > gpus_) continue;
    SCOPED_TRACE(ranks);
    const Picture many = Draw({.tensor_parallel = ranks}, request);
    ASSERT_EQ(many.image.rgb.size(), one.image.rgb.size());
    double squares = 0;
    for (size_t i = 0; i < one.image.rgb.size(); ++i) {
      squares += std::pow(int{many.image.rgb[i]} - int{one.image.rgb[i]}, 2);
    }
    const double psnr =
        10 * std::log10(255.0 * 255.0 * static_cast<double>(one.image.rgb.size()) / squares);
    // As for one GPU and the host: two runs in bfloat16 that round alike but sum in other orders.
    EXPECT_GT(psnr, 25);
    EXPECT_EQ(many.graph.eager, 1) << many.graph.reason;
    EXPECT_EQ(many.graph.recorded, 1);
    EXPECT_EQ(many.graph.replayed, many.steps - 2);
  }
}

TEST_F(RanksGpu, RunsGraphsAndLaunchesGiveTheSameBytes) {
  const auto recorded = LoadOnGpu({.tensor_parallel = 2});
  const auto launched = LoadOnGpu({.graphs = false, .tensor_parallel = 2});
  ASSERT_TRUE(recorded && launched);
  for (const Request& request :
       {Wish("red apple", 128, 128, 6, 4), Wish("", 64, 96, 5, 1), Wish("x", 48, 80, 6, 2.5)}) {
    const Picture got = Draw(*recorded, request);
    EXPECT_EQ(got.image.rgb, Draw(*recorded, request).image.rgb);
    EXPECT_EQ(got.image.rgb, Draw(*launched, request).image.rgb);
  }
  EXPECT_TRUE(recorded->health().ok());
}

// Joining and leaving, stages that are kept on one rank alone, and a request that is cancelled.
TEST_F(RanksGpu, CompanyDoesNotChangeAPicture) {
  const auto engine = LoadOnGpu({.tensor_parallel = 2});
  ASSERT_TRUE(engine);
  const Request first = Wish("cat face", 96, 96, 6, 4);
  Request second = Wish("a green tree", 64, 64, 4, 1);
  const Picture alone[] = {Draw(*engine, first), Draw(*engine, second)};
  second.keep_stages = true;
  const auto one = engine->Submit(first);
  ASSERT_TRUE(one.ok());
  ASSERT_TRUE(engine->Step().ok());
  const auto cancelled = engine->Submit(Wish("dog", 64, 64, 9, 4));
  const auto two = engine->Submit(second);
  ASSERT_TRUE(cancelled.ok() && two.ok());
  ASSERT_TRUE(engine->Step().ok());
  ASSERT_TRUE(engine->Cancel(*cancelled).ok());
  for (int step = 0; step < 6; ++step) ASSERT_TRUE(engine->Step().ok());
  const auto got_one = engine->Take(*one);
  const auto got_two = engine->Take(*two);
  ASSERT_TRUE(got_one.ok()) << got_one.error().Message();
  ASSERT_TRUE(got_two.ok()) << got_two.error().Message();
  EXPECT_EQ(got_one->image.rgb, alone[0].image.rgb);
  EXPECT_EQ(got_two->image.rgb, alone[1].image.rgb);
  EXPECT_TRUE(engine->health().ok());
}

TEST_F(RanksGpu, RanksThatAreNotThereAreRefused) {
  EngineOptions options = {.model_directory = EmojiModel()};
  options.device = "cuda:" + std::to_string(gpus_ - 1);
  options.tensor_parallel = 2;
  EXPECT_FALSE(Engine::Load(options).ok());
}

}  // namespace
}  // namespace segue
