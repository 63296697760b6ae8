#include "runtime/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/memory_check.h"

namespace segue::runtime {
namespace {

constexpr int64_t kChannels = 64;
const ModelDefaults kDefaults = {.width = 128, .height = 96, .steps = 20, .guidance = 4.0};

TEST(Settings, AbsentFieldsTakeTheDefaults) {
  Request request;
  request.height = 64;
  const auto settings = ResolveSettings(request, kDefaults, kChannels);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->width, 128);
  EXPECT_EQ(settings->height, 64);
  EXPECT_EQ(settings->steps, 20);
  EXPECT_EQ(settings->grid_width(), 8);
  EXPECT_EQ(settings->grid_height(), 4);
  EXPECT_TRUE(settings->guided);
  EXPECT_EQ(settings->negative_prompt, " ");
}

TEST(Settings, BadSizesNameTheNearestValid) {
  struct Case {
    int width, height;
    const char* field;
    const char* nearest;
  };
  for (const Case& c : std::vector<Case>{{1920, 1080, "height", "1072 or 1088"},
                                         {585, 610, "width", "576 or 592"},
                                         {1, 1, "width", "16)"},
                                         {15, 16, "width", "16)"},
                                         {17, 17, "width", "16 or 32"},
                                         {8, 8, "width", "16)"},
                                         {0, 512, "width", "16)"},
                                         {-512, 512, "width", "16)"},
                                         {512, std::numeric_limits<int>::min(), "height", "16)"},
                                         {100000, 10000, "width", "8192)"},
                                         {2147483647, 16, "width", "8192)"},
                                         {16, 8193, "height", "8192)"}}) {
    Request request;
    request.width = c.width;
    request.height = c.height;
    const auto settings = ResolveSettings(request, kDefaults, kChannels);
    ASSERT_FALSE(settings.ok()) << c.width << "x" << c.height;
    EXPECT_EQ(settings.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(settings.error().argument, c.field);
    EXPECT_NE(settings.error().wanted.find(c.nearest), std::string::npos)
        << settings.error().Message();
  }
}

TEST(Settings, AreasAreLimitedToo) {
  Request request;
  request.width = 8192;
  request.height = 2048;
  EXPECT_TRUE(ResolveSettings(request, kDefaults, kChannels).ok());
  request.height = 2064;
  const auto settings = ResolveSettings(request, kDefaults, kChannels);
  ASSERT_FALSE(settings.ok());
  EXPECT_EQ(settings.error().argument, "width x height");
  for (const auto& [width, height] : {std::pair{16, 4096}, {4096, 16}, {16, 16}, {4096, 4096}}) {
    request.width = width;
    request.height = height;
    EXPECT_TRUE(ResolveSettings(request, kDefaults, kChannels).ok());
  }
}

TEST(Settings, StepsAndGuidanceAreChecked) {
  for (const int steps : {0, -1, 1001}) {
    Request request;
    request.steps = steps;
    const auto settings = ResolveSettings(request, kDefaults, kChannels);
    ASSERT_FALSE(settings.ok());
    EXPECT_EQ(settings.error().argument, "steps");
  }
  for (const double guidance : {std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity(), 1e300, -1001.0}) {
    Request request;
    request.guidance = guidance;
    const auto settings = ResolveSettings(request, kDefaults, kChannels);
    ASSERT_FALSE(settings.ok());
    EXPECT_EQ(settings.error().argument, "guidance");
  }
}

TEST(Settings, LatentsMustFitAndBeFinite) {
  Request request;
  request.width = 32;
  request.height = 16;
  request.latents.assign(2 * kChannels, 0.5f);
  EXPECT_TRUE(ResolveSettings(request, kDefaults, kChannels).ok());
  request.latents[70] = std::numeric_limits<float>::quiet_NaN();
  auto settings = ResolveSettings(request, kDefaults, kChannels);
  ASSERT_FALSE(settings.ok());
  EXPECT_EQ(settings.error().argument, "latents[70]");
  request.latents.pop_back();
  settings = ResolveSettings(request, kDefaults, kChannels);
  ASSERT_FALSE(settings.ok());
  EXPECT_EQ(settings.error().got, "127 values");
  EXPECT_EQ(settings.error().wanted, "128 (2 rows of 64)");
}

class MemoryCheck : public testing::Test {
 protected:
  static Result<model::Checkpoint> Tiny() {
    return model::Checkpoint::Open(std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model");
  }
};

TEST_F(MemoryCheck, TooLittleForTheModelIsSaidWithItsParts) {
  const auto checkpoint = Tiny();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  EXPECT_TRUE(CheckModelMemory(*checkpoint, HostInfo()).ok());
  const Status status = CheckModelMemory(*checkpoint, {.free_bytes = int64_t{1} << 20});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  for (const char* part :
       {"1 MiB available", "transformer", "text encoder", "decoder", "picture"}) {
    EXPECT_NE(status.error().Message().find(part), std::string::npos) << status.error().Message();
  }
}

TEST_F(MemoryCheck, RandomWeightsAreCountedBeforeTheyAreMade) {
  const auto checkpoint =
      model::Checkpoint::OpenRandom(std::string(SEGUE_SOURCE_DIR) + "/models/qwen_image", 1);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  const Status status = CheckModelMemory(*checkpoint, {.free_bytes = int64_t{50} << 30});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(status.error().Message().find("random weights 5"), std::string::npos)
      << status.error().Message();
}

TEST_F(MemoryCheck, TooLittleForARequestIsSaid) {
  const auto checkpoint = Tiny();
  ASSERT_TRUE(checkpoint.ok());
  const model::ModelConfig config = {.dit = checkpoint->dit_config(),
                                     .text_encoder = checkpoint->text_encoder_config(),
                                     .vae = checkpoint->vae_config()};
  RequestState state;
  state.settings.width = 4096;
  state.settings.height = 4096;
  state.settings.guided = true;
  state.prompts.resize(2);
  for (model::PromptIds& prompt : state.prompts) {
    prompt.ids.assign(40, 1);
    prompt.rows = 6;
  }
  EXPECT_TRUE(CheckRequestMemory(config, state, {}, {.free_bytes = int64_t{1} << 40}).ok());
  EXPECT_TRUE(CheckRequestMemory(config, state, {}, {.free_bytes = 0}).ok());  // unknown
  const Status status = CheckRequestMemory(config, state, {}, {.free_bytes = int64_t{1} << 27});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(status.error().Message().find("4096x4096"), std::string::npos);
}

}  // namespace
}  // namespace segue::runtime
