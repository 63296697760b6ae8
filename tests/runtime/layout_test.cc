// The real checkpoint's layout, written by tools/make_layout as sparse files: 20 billion parameters
// whose headers are real and whose values are holes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "device/device.h"
#include "model/qwen_image.h"
#include "model/weights/checkpoint.h"
#include "segue/checkpoint.h"
#include "segue/engine.h"
#include "weights/files.h"

namespace segue {
namespace {

class Layout : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    parent_ = std::make_unique<segue::testing::TempDirectory>();
    const std::string root = SEGUE_SOURCE_DIR;
    const std::string command = "python3 '" + root + "/tools/make_layout' '" + Directory() +
                                "' --tokenizer '" + root + "/tests/goldens/tiny/model/tokenizer'";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void TearDownTestSuite() { parent_.reset(); }
  static std::string Directory() { return *parent_ / "layout"; }

  static std::unique_ptr<segue::testing::TempDirectory> parent_;
};

std::unique_ptr<segue::testing::TempDirectory> Layout::parent_;

TEST_F(Layout, HasThePublishedCounts) {
  const auto checkpoint = model::Checkpoint::Open(Directory());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  EXPECT_EQ(checkpoint->transformer().items().size(), 1933u);
  EXPECT_EQ(checkpoint->transformer().files().size(), 9u);
  EXPECT_EQ(checkpoint->transformer().total_parameters(), 20'430'401'088);
  EXPECT_EQ(checkpoint->transformer().total_bytes(), 40'860'802'176);
  EXPECT_EQ(checkpoint->text_encoder().items().size(), 729u);
  EXPECT_EQ(checkpoint->text_encoder().files().size(), 4u);
  EXPECT_EQ(checkpoint->text_encoder().total_parameters(), 8'292'166'656);
  EXPECT_EQ(checkpoint->vae().items().size(), 194u);
  EXPECT_EQ(checkpoint->vae().total_parameters(), 126'892'531);
  EXPECT_EQ(checkpoint->text_prefix(), "model.");
  EXPECT_EQ(checkpoint->flow_match_config().max_image_seq_len, 8192);
}

TEST_F(Layout, Loads) {
  const auto checkpoint = model::Checkpoint::Open(Directory());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  const comm::SingleRank communicator;
  model::WeightStore store = model::WeightStore::Host();
  const auto model = model::QwenImage::Load(*checkpoint, communicator, store);
  ASSERT_TRUE(model.ok()) << model.error().Message();
  EXPECT_EQ((*model)->config().dit.hidden(), 3072);
}

// The full model on one GPU, guided, at 1024x1024, without a GPU at hand.
TEST_F(Layout, FitsInSixtyGigabytesOfAGpu) {
  const auto summary = InspectCheckpoint(Directory(), {{1024, 1024}}, "cuda");
  ASSERT_TRUE(summary.ok()) << summary.error().Message();
  const MemoryPlan& plan = summary->plans.at(0);
  // 20,430,401,088 parameters of the transformer, 7.07 G of the text encoder, 73 M of the decoder
  // (all taps of its kernels), two bytes each, each rounded up to 256.
  EXPECT_NEAR(static_cast<double>(plan.weights), 55.145e9, 0.001e9);
  // 256 timesteps, and the little that tabulating them works in.
  const int64_t table = 256 * 2 * (12 * 60 + 2) * int64_t{3072};
  EXPECT_GE(plan.modulation, table);
  EXPECT_LE(plan.modulation, table + (int64_t{1} << 20));
  EXPECT_LE(plan.peak, 60'000'000'000);
  // Latents of 4096 rows and text rows of two branches besides.
  const int64_t request = 2 * (4096 * 64 + 2 * plan.text_rows * int64_t{3072});
  const int64_t flag = 256;
  EXPECT_EQ(plan.peak, plan.weights + plan.modulation + plan.libraries + request + flag +
                           std::max({plan.text_encoder_activations, plan.transformer_activations,
                                     plan.vae_activations, plan.choosing}));
  // Two y of the widest product's 8192 rows, and its x.
  EXPECT_GE(plan.choosing, 2 * 8192 * int64_t{12288} * 2 + 8192 * int64_t{12288} * 2);
  // One schedule: no modulation weights, 50 timesteps.
  EXPECT_LE(plan.peak_one_schedule, 46'000'000'000);
  const int64_t modulation_weights = 2 * int64_t{60} * 2 * 6 * 3072 * (3072 + 1);
  EXPECT_NEAR(static_cast<double>(plan.peak - plan.peak_one_schedule),
              static_cast<double>(modulation_weights + table * (256 - 50) / 256), 0.1e9);
}

// Configurations alone are enough for weights out of a seed.
TEST(RandomWeights, ArePlannedLikeTheFiles) {
  const std::string configs = std::string(SEGUE_SOURCE_DIR) + "/models/qwen_image";
  EXPECT_FALSE(InspectCheckpoint(configs, {}, "cuda").ok());
  for (const char* device : {"cpu", "cuda"}) {
    const auto summary = InspectCheckpoint(configs, {{1024, 1024}}, device, true);
    ASSERT_TRUE(summary.ok()) << summary.error().Message();
    EXPECT_NEAR(static_cast<double>(summary->plans.at(0).weights), 55.145e9, 0.001e9) << device;
  }
}

TEST_F(Layout, IsInspectedAndPlanned) {
  const auto start = std::chrono::steady_clock::now();
  const auto summary = InspectCheckpoint(Directory(), {{1024, 1024}, {1664, 928}});
  ASSERT_TRUE(summary.ok()) << summary.error().Message();
  // Headers only: some milliseconds, and far from the minutes that 58 GB would take.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  // The vision tower (390 tensors) and the output head.
  EXPECT_EQ(summary->components[1].unused_tensors, 391);
  const MemoryPlan& plan = summary->plans[0];
  // 40.86 GB of transformer, 14.14 GB of the encoder's language part, 0.15 GB of decoder.
  EXPECT_NEAR(static_cast<double>(plan.weights), 55.15e9, 0.05e9);
  EXPECT_GT(plan.transformer_activations, int64_t{100} << 20);
  EXPECT_GT(plan.peak, plan.weights);
  EXPECT_EQ(plan.sequences, 2);
  EXPECT_GT(summary->plans[1].transformer_activations, plan.transformer_activations);
}

TEST_F(Layout, IsVerified) {
  if (!segue::testing::ReportsHoles(Directory() + "/vae/diffusion_pytorch_model.safetensors")) {
    GTEST_SKIP() << "no holes are reported here, so all 58 GB would be read";
  }
  const auto report = VerifyCheckpoint(Directory());
  ASSERT_TRUE(report.ok()) << report.error().Message();
  EXPECT_TRUE(report->problems.empty()) << ::testing::PrintToString(report->problems);
}

TEST_F(Layout, IsRefusedWhereItDoesNotFit) {
  if (HostInfo().free_bytes == 0 || HostInfo().free_bytes > (int64_t{64} << 30)) {
    GTEST_SKIP() << "this machine has room for it";
  }
  EngineOptions options;
  options.model_directory = Directory();
  options.threads = 1;
  const auto engine = Engine::Load(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace segue
