// Quality tiers in the engine, on the host: what mounts, what does not, and that nothing leaks from
// one request to another.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "segue/engine.h"

namespace segue {
namespace {

std::unique_ptr<Engine> LoadTiny(EngineOptions options) {
  options.model_directory = std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model";
  if (options.threads == 0) options.threads = 2;
  auto engine = Engine::Load(options);
  EXPECT_TRUE(engine.ok()) << engine.error().Message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

Request Wish(Quality quality, uint64_t seed = 1) {
  Request request;
  request.prompt = "a cat";
  request.negative_prompt = "blurry";
  request.width = 48;
  request.height = 32;
  request.steps = 4;
  request.guidance = 3.0;
  request.seed = seed;
  request.quality = quality;
  request.keep_stages = true;
  return request;
}

Picture Draw(Engine& engine, const Request& request) {
  auto picture = engine.Generate(request);
  EXPECT_TRUE(picture.ok()) << picture.error().Message();
  return picture.ok() ? std::move(*picture) : Picture{};
}

const StageTensor& Stage(const Picture& picture, const std::string& name) {
  static const StageTensor none;
  for (const StageTensor& stage : picture.stages) {
    if (stage.name == name) return stage;
  }
  ADD_FAILURE() << "no stage " << name;
  return none;
}

bool SameBytes(const Picture& a, const Picture& b) {
  return a.image.rgb == b.image.rgb &&
         Stage(a, "final_latents").values == Stage(b, "final_latents").values;
}

std::vector<std::string> RefusedNames(const QualityReport& report) {
  std::vector<std::string> names;
  for (const RefusedGate& refused : report.refused) names.push_back(refused.name);
  return names;
}

// What the host can be gated with.
const std::vector<std::string> kOnTheHost = {"gelu-epilogue", "float32-norms", "float32-heads"};

TEST(QualityTier, InFloat32EveryGateIsRefusedWithTheReason) {
  const auto engine = LoadTiny({});
  ASSERT_NE(engine, nullptr);
  const Picture high = Draw(*engine, Wish(Quality::kHigh));
  EXPECT_EQ(high.quality.tier, Quality::kHigh);
  EXPECT_TRUE(high.quality.mounted.empty());
  EXPECT_EQ(RefusedNames(high.quality),
            (std::vector<std::string>{"gelu-epilogue", "packed-text-qkv"}));
  for (const RefusedGate& refused : high.quality.refused) {
    EXPECT_EQ(refused.reason, "the forward is in float32, where nothing is rounded in between");
  }
  const Picture lossless = Draw(*engine, Wish(Quality::kLossless));
  EXPECT_TRUE(SameBytes(high, lossless));
  EXPECT_EQ(lossless.quality.tier, Quality::kLossless);
  EXPECT_TRUE(lossless.quality.refused.empty());
}

TEST(QualityTier, InBFloat16GatesMountAndChangeWhatTheyGate) {
  const auto engine = LoadTiny({.bf16_rounding = true});
  ASSERT_NE(engine, nullptr);
  const Picture lossless = Draw(*engine, Wish(Quality::kLossless));
  const Picture high = Draw(*engine, Wish(Quality::kHigh));
  EXPECT_EQ(high.quality.mounted, std::vector<std::string>{"gelu-epilogue"});
  EXPECT_EQ(RefusedNames(high.quality), std::vector<std::string>{"packed-text-qkv"});
  EXPECT_NE(high.quality.refused[0].reason.find("bytes of three"), std::string::npos);
  EXPECT_FALSE(SameBytes(high, lossless));
  // Encoding, modulation and decoding are not gated.
  EXPECT_EQ(Stage(high, "prompt.embeddings").values, Stage(lossless, "prompt.embeddings").values);
  EXPECT_EQ(Stage(high, "noise").values, Stage(lossless, "noise").values);
  // Each gate by itself changes something, and something else than the others do, or all of them.
  std::vector<std::vector<float>> velocities = {Stage(lossless, "step.000.velocity").values};
  std::vector<std::vector<std::string>> sets = {kOnTheHost};
  for (const std::string& gate : kOnTheHost) sets.push_back({gate});
  for (const std::vector<std::string>& gates : sets) {
    Request request = Wish(Quality::kHigh);
    request.gates = gates;
    const Picture picture = Draw(*engine, request);
    EXPECT_EQ(picture.quality.mounted, request.gates);
    EXPECT_TRUE(picture.quality.refused.empty());
    const std::vector<float>& velocity = Stage(picture, "step.000.velocity").values;
    for (const auto& other : velocities) EXPECT_NE(velocity, other) << gates[0];
    velocities.push_back(velocity);
  }
}

TEST(QualityTier, ReferenceKernelsGiveTheSameBytes) {
  const auto fast = LoadTiny({.bf16_rounding = true});
  const auto plain = LoadTiny({.bf16_rounding = true, .reference_kernels = true});
  ASSERT_TRUE(fast && plain);
  // But for attention, which every back end rounds in its own way: the plain one in both.
  const auto same_attention = LoadTiny({.bf16_rounding = true, .attention_backend = "ref"});
  ASSERT_TRUE(same_attention);
  for (const Quality quality : {Quality::kLossless, Quality::kHigh}) {
    Request request = Wish(quality);
    if (quality == Quality::kHigh) request.gates = kOnTheHost;
    const Picture want = Draw(*plain, request);
    const Picture got = Draw(*same_attention, request);
    EXPECT_TRUE(SameBytes(got, want)) << QualityName(quality);
    EXPECT_EQ(got.quality.mounted, want.quality.mounted);
    EXPECT_EQ(want.attention_backend, "ref");
    EXPECT_EQ(got.attention_backend, "ref");
  }
  EXPECT_EQ(Draw(*fast, Wish(Quality::kHigh)).graph.eager, 4);
}

// Requests of both tiers at once, joining and leaving between steps, in every order.
TEST(QualityTier, InterleavedRequestsGiveTheBytesTheyGiveAlone) {
  std::vector<Request> requests = {Wish(Quality::kHigh, 1), Wish(Quality::kLossless, 2),
                                   Wish(Quality::kHigh, 3), Wish(Quality::kLossless, 1)};
  requests[1].steps = 3;
  requests[2].gates = {"float32-norms"};
  requests[2].width = 32;
  std::vector<Picture> alone;
  for (const Request& request : requests) {
    const auto engine = LoadTiny({.bf16_rounding = true});
    ASSERT_NE(engine, nullptr);
    alone.push_back(Draw(*engine, request));
  }
  ASSERT_FALSE(SameBytes(alone[0], alone[3]));  // of one seed: the tier shows

  const auto engine = LoadTiny({.bf16_rounding = true});
  ASSERT_NE(engine, nullptr);
  // One after another: high, lossless, high, lossless.
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(SameBytes(Draw(*engine, requests[i]), alone[i])) << i;
  }
  // Together, one joining before each step.
  std::vector<RequestId> ids;
  for (size_t step = 0; step < 12; ++step) {
    if (step < requests.size()) {
      const auto id = engine->Submit(requests[step]);
      ASSERT_TRUE(id.ok()) << id.error().Message();
      ids.push_back(*id);
    }
    const auto report = engine->Step();
    ASSERT_TRUE(report.ok()) << report.error().Message();
    if (step == 2) {
      EXPECT_EQ(report->advanced.size(), 3u);  // three forwards, one step each
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto picture = engine->Take(ids[i]);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    EXPECT_TRUE(SameBytes(*picture, alone[i])) << i;
    EXPECT_EQ(picture->quality.mounted, alone[i].quality.mounted);
  }
}

// How often products ran tells how many forwards there were.
TEST(QualityTier, TiersNeverShareAForward) {
  const auto count = [](const std::vector<Quality>& tiers) -> int64_t {
    const auto engine = LoadTiny({.bf16_rounding = true});
    if (engine == nullptr) return 0;
    std::vector<RequestId> ids;
    for (const Quality tier : tiers) {
      Request request = Wish(tier);
      request.steps = 1;
      const auto id = engine->Submit(request);
      EXPECT_TRUE(id.ok());
      if (id.ok()) ids.push_back(*id);
    }
    EXPECT_TRUE(engine->Step().ok());
    int64_t calls = 0;
    // Counted from the submission to the end, in which encoding the second lies too; modulated_norm
    // runs in the transformer alone.
    const auto picture = engine->Take(ids.back());
    EXPECT_TRUE(picture.ok());
    if (!picture.ok()) return 0;
    for (const KernelUse& use : picture->kernels) {
      if (use.op == "modulated_norm") calls += use.calls;
    }
    return calls;
  };
  const int64_t one = count({Quality::kLossless});
  EXPECT_GT(one, 0);
  EXPECT_EQ(count({Quality::kLossless, Quality::kLossless}), one);
  EXPECT_EQ(count({Quality::kHigh, Quality::kHigh}), one);
  EXPECT_EQ(count({Quality::kLossless, Quality::kHigh}), 2 * one);
}

TEST(QualityTier, WhatCannotBeHonouredIsAnError) {
  const auto engine = LoadTiny({.bf16_rounding = true});
  ASSERT_NE(engine, nullptr);
  Request request = Wish(static_cast<Quality>(9));
  EXPECT_FALSE(engine->Validate(request).ok());
  EXPECT_FALSE(engine->Submit(request).ok());
  request = Wish(Quality::kHigh);
  request.gates = {"no-such-gate"};
  const Status unknown = engine->Validate(request);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().Message().find("no-such-gate"), std::string::npos);
  request = Wish(Quality::kLossless);
  request.gates = {"gelu-epilogue"};
  EXPECT_FALSE(engine->Validate(request).ok());
}

}  // namespace
}  // namespace segue
