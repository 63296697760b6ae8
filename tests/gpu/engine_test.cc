// Whole pictures on a GPU: the same bytes from plain and fused kernels, launched or replayed, alone
// or in company, with and without kept choices; and near the host's.
#include "segue/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gpu/engine_rig.h"

namespace segue {
namespace {

// Prompts of one token and of more than a slot of 64, odd grids, with and without guidance.
std::vector<Request> Wishes() {
  std::string long_prompt = "red apple";
  for (int i = 0; i < 30; ++i) long_prompt += " on a blue table";
  return {Wish("red apple", 128, 128, 8, 4), Wish("", 64, 96, 5, 1), Wish("x", 48, 80, 6, 2.5),
          Wish(long_prompt, 96, 96, 4, 4)};
}

class EngineGpu : public EmojiEngine {};

TEST_F(EngineGpu, FusedKernelsGiveThePlainOnesBytes) {
  const auto fast = Load({.device = "cuda"});
  const auto plain = Load({.device = "cuda", .reference_kernels = true});
  ASSERT_TRUE(fast && plain);
  for (const Request& request : Wishes()) {
    const Picture got = Draw(*fast, request);
    const Picture want = Draw(*plain, request);
    EXPECT_EQ(got.image.rgb, want.image.rgb) << request.prompt.substr(0, 20);
    EXPECT_EQ(want.graph.replayed, 0);
    EXPECT_EQ(got.device, want.device);
  }
}

TEST_F(EngineGpu, ReplayedStepsGiveTheLaunchedOnesBytes) {
  const auto recorded = Load({.device = "cuda"});
  const auto launched = Load({.device = "cuda", .graphs = false});
  ASSERT_TRUE(recorded && launched);
  for (const Request& request : Wishes()) {
    const Picture got = Draw(*recorded, request);
    EXPECT_EQ(got.graph.eager, 1) << got.graph.reason;  // the shape's first step
    EXPECT_EQ(got.graph.recorded, 1);
    EXPECT_EQ(got.graph.replayed, got.steps - 2);
    EXPECT_EQ(got.image.rgb, Draw(*launched, request).image.rgb);
  }
  // Another prompt and other settings of the same shape find their graph, though the workspace
  // has grown since it was recorded.
  Request other = Wish("cat face", 128, 128, 3, 2);
  const Picture got = Draw(*recorded, other);
  EXPECT_EQ(got.graph.replayed, 3);
  EXPECT_EQ(got.image.rgb, Draw(*launched, other).image.rgb);
}

// Little enough to be drawn while every access is watched (tools/sanitize).
TEST_F(EngineGpu, ASmallPictureIsTheSameLaunchedAndReplayed) {
  const auto recorded = Load({.device = "cuda"});
  const auto launched = Load({.device = "cuda", .graphs = false});
  ASSERT_TRUE(recorded && launched);
  const Request request = Wish("red apple", 32, 32, 3, 2.5);
  const Picture got = Draw(*recorded, request);
  EXPECT_EQ(got.graph.replayed, 1);
  EXPECT_EQ(got.image.rgb, Draw(*launched, request).image.rgb);
}

TEST_F(EngineGpu, CompanyChangesNoByte) {
  const auto engine = Load({.device = "cuda"});
  ASSERT_TRUE(engine);
  std::vector<Image> alone;
  for (const Request& request : Wishes()) alone.push_back(Draw(*engine, request).image);
  // All at once; the last joins two steps later.
  std::map<RequestId, size_t> index;
  const std::vector<Request> wishes = Wishes();
  const auto submit = [&](size_t i) {
    const auto id = engine->Submit(wishes[i]);
    ASSERT_TRUE(id.ok()) << id.error().Message();
    index[*id] = i;
  };
  for (size_t i = 0; i + 1 < wishes.size(); ++i) submit(i);
  size_t taken = 0;
  for (int step = 0; taken < wishes.size() && step < 100; ++step) {
    if (step == 2) submit(wishes.size() - 1);
    const auto report = engine->Step();
    ASSERT_TRUE(report.ok()) << report.error().Message();
    for (const RequestId id : report->finished) {
      const auto picture = engine->Take(id);
      ASSERT_TRUE(picture.ok()) << picture.error().Message();
      EXPECT_EQ(picture->image.rgb, alone[index[id]].rgb) << index[id];
      ++taken;
    }
  }
  EXPECT_EQ(taken, wishes.size());
}

// A prompt of so many words, each a token or two; 1024 of them are more than a model takes.
std::string Words(int count) {
  std::string prompt = "red";
  for (int i = 1; i < count; ++i) prompt += i % 2 == 0 ? " red" : " apple";
  return prompt;
}

// The sizes that users ask for and prompts on either side of a slot's end: plain kernels launch
// by launch, and all requests of different sizes, slots and steps in one replayed step.
TEST_F(EngineGpu, EverySizeAndLengthIsTheReferencesAloneAndTogether) {
  const auto fast = Load({.device = "cuda"});
  const auto plain = Load({.device = "cuda", .reference_kernels = true});
  ASSERT_TRUE(fast && plain);
  const std::vector<Request> wishes = {
      Wish(Words(1), 1024, 1024, 2, 4),    Wish(Words(55), 1328, 1328, 2, 1),
      Wish(Words(63), 1664, 928, 3, 1),    Wish(Words(120), 832, 1328, 2, 3),
      Wish(Words(300), 512, 512, 4, 1),    Wish(Words(600), 256, 256, 3, 2),
      Wish(Words(1000), 16, 4096, 2, 1.5), Wish("", 16, 16, 5, 1)};
  std::vector<Image> want;
  for (const Request& request : wishes) {
    want.push_back(Draw(*plain, request).image);
    EXPECT_EQ(Draw(*fast, request).image.rgb, want.back().rgb)
        << *request.width << "x" << *request.height;
  }
  std::map<RequestId, size_t> index;
  for (size_t i = 0; i < wishes.size(); ++i) {
    const auto id = fast->Submit(wishes[i]);
    ASSERT_TRUE(id.ok()) << id.error().Message();
    index[*id] = i;
  }
  size_t taken = 0;
  for (int step = 0; taken < wishes.size() && step < 20; ++step) {
    const auto report = fast->Step();
    ASSERT_TRUE(report.ok()) << report.error().Message();
    for (const RequestId id : report->finished) {
      const auto picture = fast->Take(id);
      ASSERT_TRUE(picture.ok()) << picture.error().Message();
      EXPECT_EQ(picture->image.rgb, want[index[id]].rgb) << index[id];
      ++taken;
    }
  }
  EXPECT_EQ(taken, wishes.size());
}

TEST_F(EngineGpu, KeptChoicesChangeNoByte) {
  const auto cache =
      std::filesystem::temp_directory_path() / ("segue_engine_test_" + std::to_string(getpid()));
  std::vector<uint8_t> want;
  for (const bool deleted : {false, false, true}) {
    if (deleted) std::filesystem::remove_all(cache);
    const auto engine = Load({.device = "cuda", .cache_directory = cache.string()});
    ASSERT_TRUE(engine);
    const Picture picture = Draw(*engine, Wishes()[0]);
    if (want.empty()) want = picture.image.rgb;
    EXPECT_EQ(picture.image.rgb, want);
  }
  std::filesystem::remove_all(cache);
}

TEST_F(EngineGpu, ACancelledRequestLeavesTheOthersAlone) {
  const auto engine = Load({.device = "cuda"});
  ASSERT_TRUE(engine);
  const Picture want = Draw(*engine, Wishes()[2]);
  const auto gone = engine->Submit(Wishes()[0]);
  const auto kept = engine->Submit(Wishes()[2]);
  ASSERT_TRUE(gone.ok() && kept.ok());
  ASSERT_TRUE(engine->Step().ok());
  ASSERT_TRUE(engine->Cancel(*gone).ok());  // while its step may still be running
  for (int step = 0; step < want.steps; ++step) ASSERT_TRUE(engine->Step().ok());
  const auto picture = engine->Take(*kept);
  ASSERT_TRUE(picture.ok()) << picture.error().Message();
  EXPECT_EQ(picture->image.rgb, want.image.rgb);
}

TEST_F(EngineGpu, PicturesAreNearTheHosts) {
  const auto gpu = Load({.device = "cuda"});
  const auto host = Load({.bf16_rounding = true});
  ASSERT_TRUE(gpu && host);
  const Request request = Wish("red apple", 128, 128, 12, 4);
  const Picture got = Draw(*gpu, request);
  const Picture want = Draw(*host, request);
  ASSERT_EQ(got.image.rgb.size(), want.image.rgb.size());
  double squares = 0;
  for (size_t i = 0; i < want.image.rgb.size(); ++i) {
    squares += std::pow(int{got.image.rgb[i]} - int{want.image.rgb[i]}, 2);
  }
  const double psnr =
      10 * std::log10(255.0 * 255.0 * static_cast<double>(want.image.rgb.size()) / squares);
  // Two runs in bfloat16 that round alike but sum in other orders.
  EXPECT_GT(psnr, 25.0);
}

TEST_F(EngineGpu, WhatCannotBeHonouredIsLoadsError) {
  const auto load = [](EngineOptions options) {
    options.model_directory = EmojiModel();
    return Engine::Load(options);
  };
  const auto no_such_device = load({.device = "cuda:99"});
  ASSERT_FALSE(no_such_device.ok());
  const auto other_heads = load({.device = "cuda", .attention_backend = "sm90"});
  ASSERT_FALSE(other_heads.ok());
  EXPECT_NE(other_heads.error().Message().find("head_dim"), std::string::npos);
  EXPECT_FALSE(load({.device = "cuda", .attention_backend = "cpu"}).ok());
}

}  // namespace
}  // namespace segue
