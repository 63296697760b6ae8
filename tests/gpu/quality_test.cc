// Quality tiers on a GPU: gates change what they gate and nothing else, in graphs and without.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gpu/engine_rig.h"
#include "segue/engine.h"

namespace segue {
namespace {

Request Wish(Quality quality, int width = 64, int steps = 6) {
  Request request;
  request.prompt = "red apple";
  request.negative_prompt = " ";
  request.width = width;
  request.height = 64;
  request.steps = steps;
  request.guidance = 4;
  request.seed = 5;
  request.quality = quality;
  return request;
}

class QualityGpu : public EmojiEngine {
 protected:
  static std::vector<std::string> AllGates() {
    std::vector<std::string> names;
    for (const GateInfo& gate : QualityGates()) names.push_back(gate.name);
    return names;
  }
};

TEST_F(QualityGpu, EveryGateMountsOrSaysWhy) {
  const auto engine = LoadOnGpu({});
  ASSERT_TRUE(engine);
  const Picture lossless = Draw(*engine, Wish(Quality::kLossless));
  EXPECT_FALSE(lossless.attention_backend.empty());
  for (const std::string& gate : AllGates()) {
    Request request = Wish(Quality::kHigh);
    request.gates = {gate};
    const Picture picture = Draw(*engine, request);
    if (picture.quality.mounted.empty()) {
      // The one whose lossless form may have the same bytes already.
      EXPECT_EQ(gate, "packed-text-qkv");
      ASSERT_EQ(picture.quality.refused.size(), 1u);
      EXPECT_NE(picture.quality.refused[0].reason, "");
      EXPECT_EQ(picture.image.rgb, lossless.image.rgb);
      continue;
    }
    EXPECT_EQ(picture.quality.mounted, request.gates);
    EXPECT_NE(picture.image.rgb, lossless.image.rgb) << gate << " changed nothing";
    const auto quality = MeasureQuality(picture.image, lossless.image);
    ASSERT_TRUE(quality.ok());
    EXPECT_GT(quality->psnr, 30) << gate;
  }
}

TEST_F(QualityGpu, FastKernelsAndGraphsGiveThePlainOnesBytes) {
  const auto fast = LoadOnGpu({});
  const auto launched = LoadOnGpu({.graphs = false});
  const auto plain = LoadOnGpu({.reference_kernels = true});
  ASSERT_TRUE(fast && launched && plain);
  std::vector<std::vector<std::string>> sets = {{}, AllGates()};
  for (const std::string& gate : AllGates()) sets.push_back({gate});
  for (const std::vector<std::string>& gates : sets) {
    Request request = Wish(Quality::kHigh);
    request.gates = gates;
    const std::string name = gates.empty() ? "high" : gates[0];
    const Picture got = Draw(*fast, request);
    const Picture want = Draw(*plain, request);
    EXPECT_EQ(got.image.rgb, want.image.rgb) << name;
    EXPECT_EQ(got.image.rgb, Draw(*launched, request).image.rgb) << name;
    EXPECT_EQ(got.quality.mounted, want.quality.mounted) << name;
  }
}

// A graph belongs to its tier and gates.
TEST_F(QualityGpu, GraphsAreNotSharedBetweenTiers) {
  const auto engine = LoadOnGpu({});
  ASSERT_TRUE(engine);
  const Picture lossless = Draw(*engine, Wish(Quality::kLossless));
  EXPECT_EQ(lossless.graph.replayed, lossless.steps - 2) << lossless.graph.reason;
  const Picture high = Draw(*engine, Wish(Quality::kHigh));
  EXPECT_EQ(high.graph.eager, 1) << high.graph.reason;
  EXPECT_EQ(high.graph.recorded, 1);
  const Picture lossless_again = Draw(*engine, Wish(Quality::kLossless));
  EXPECT_EQ(lossless_again.graph.replayed, lossless_again.steps);
  EXPECT_EQ(lossless_again.image.rgb, lossless.image.rgb);
  const Picture high_again = Draw(*engine, Wish(Quality::kHigh));
  EXPECT_EQ(high_again.graph.replayed, high_again.steps);
  EXPECT_EQ(high_again.image.rgb, high.image.rgb);
  EXPECT_NE(high.image.rgb, lossless.image.rgb);
}

TEST_F(QualityGpu, InterleavedRequestsGiveTheBytesTheyGiveAlone) {
  std::vector<Request> requests = {Wish(Quality::kHigh, 64), Wish(Quality::kLossless, 64, 5),
                                   Wish(Quality::kHigh, 96), Wish(Quality::kLossless, 64)};
  requests[2].gates = {"float32-norms", "float32-heads"};
  std::vector<Image> alone;
  for (const Request& request : requests) {
    const auto engine = LoadOnGpu({});
    ASSERT_TRUE(engine);
    alone.push_back(Draw(*engine, request).image);
  }
  for (const bool graphs : {true, false}) {
    const auto engine = LoadOnGpu({.graphs = graphs});
    ASSERT_TRUE(engine);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(Draw(*engine, requests[i]).image.rgb, alone[i].rgb) << "in turn, " << i;
    }
    std::vector<RequestId> ids;
    for (size_t step = 0; step < 16; ++step) {
      if (step < requests.size()) {
        const auto id = engine->Submit(requests[step]);
        ASSERT_TRUE(id.ok()) << id.error().Message();
        ids.push_back(*id);
      }
      const auto report = engine->Step();
      ASSERT_TRUE(report.ok()) << report.error().Message();
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto picture = engine->Take(ids[i]);
      ASSERT_TRUE(picture.ok()) << picture.error().Message();
      EXPECT_EQ(picture->image.rgb, alone[i].rgb) << "together, " << i;
    }
  }
}

}  // namespace
}  // namespace segue
