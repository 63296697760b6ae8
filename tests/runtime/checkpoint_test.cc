// What `segue inspect` and `segue verify` stand on.
#include "segue/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "weights/files.h"

namespace segue {
namespace {

using segue::testing::ReplaceInFile;
using segue::testing::TempDirectory;
using segue::testing::WriteFile;

const std::string kTiny = std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model";

TEST(InspectCheckpoint, DescribesEveryComponent) {
  const auto summary = InspectCheckpoint(kTiny, {});
  ASSERT_TRUE(summary.ok()) << summary.error().Message();
  ASSERT_EQ(summary->components.size(), 5u);
  const ComponentSummary& transformer = summary->components[0];
  EXPECT_EQ(transformer.name, "transformer");
  EXPECT_EQ(transformer.class_name, "QwenImageTransformer2DModel");
  EXPECT_EQ(transformer.files.size(), 3u);
  EXPECT_EQ(transformer.tensors.size(), 3u * 32 + 13);
  EXPECT_EQ(transformer.unused_tensors, 0);
  int64_t parameters = 0;
  for (const TensorSummary& tensor : transformer.tensors) {
    int64_t count = 1;
    for (int64_t extent : tensor.shape) count *= extent;
    parameters += count;
    EXPECT_TRUE(std::filesystem::exists(kTiny + "/" + tensor.file)) << tensor.file;
    EXPECT_FALSE(tensor.dtype.empty());
  }
  EXPECT_EQ(parameters, transformer.parameters);
  EXPECT_EQ(summary->components[3].name, "tokenizer");
  EXPECT_EQ(summary->components[3].files.front(), "tokenizer/added_tokens.json");
}

TEST(InspectCheckpoint, PlansMemoryBySize) {
  const auto summary = InspectCheckpoint(kTiny, {{64, 64}, {512, 256}});
  ASSERT_TRUE(summary.ok()) << summary.error().Message();
  ASSERT_EQ(summary->plans.size(), 2u);
  const MemoryPlan& small = summary->plans[0];
  const MemoryPlan& large = summary->plans[1];
  EXPECT_EQ(small.width, 64);
  EXPECT_EQ(large.height, 256);
  EXPECT_GT(small.weights, 0);
  // Tensors nobody reads need no memory.
  EXPECT_LT(small.weights, summary->components[0].bytes + summary->components[1].bytes +
                               summary->components[2].bytes);
  EXPECT_GT(large.vae_activations, small.vae_activations);
  EXPECT_GT(large.transformer_activations, small.transformer_activations);
  EXPECT_GE(large.peak,
            large.weights + std::max({large.vae_activations, large.transformer_activations,
                                      large.text_encoder_activations}));
  EXPECT_TRUE(small.fits);
}

TEST(InspectCheckpoint, RefusesBadSizes) {
  for (const PictureSize& size :
       {PictureSize{0, 0}, PictureSize{60, 64}, PictureSize{64, -16}, PictureSize{1 << 20, 16}}) {
    EXPECT_FALSE(InspectCheckpoint(kTiny, {size}).ok()) << size.width;
  }
  EXPECT_EQ(InspectCheckpoint(kTiny + "/absent", {}).error().code, ErrorCode::kNotFound);
}

TEST(VerifyCheckpoint, FindsTheEmojiModelSound) {
  const std::string directory = std::string(SEGUE_SOURCE_DIR) + "/models/emoji";
  const auto report = VerifyCheckpoint(directory);
  ASSERT_TRUE(report.ok()) << report.error().Message();
  EXPECT_TRUE(report->problems.empty()) << ::testing::PrintToString(report->problems);
  // It ships the tokenizer in both forms.
  EXPECT_EQ(std::count(report->checks.begin(), report->checks.end(),
                       "tokenizer: tokenizer.json agrees with vocab.json and merges.txt"),
            1);
}

// A copy of the tiny checkpoint that a test may damage.
class VerifyDamaged : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(kTiny, directory_.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
  }

  std::vector<std::string> Problems() const {
    const auto report = VerifyCheckpoint(directory_.path());
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->problems : std::vector<std::string>();
  }

  // One problem, which mentions each of these.
  void ExpectOne(std::initializer_list<std::string_view> parts) const {
    const std::vector<std::string> problems = Problems();
    ASSERT_EQ(problems.size(), 1u) << ::testing::PrintToString(problems);
    for (std::string_view part : parts) {
      EXPECT_NE(problems[0].find(part), std::string::npos) << part << " in " << problems[0];
    }
  }

  TempDirectory directory_;
};

TEST_F(VerifyDamaged, FindsTheTinyOneSound) {
  const auto report = VerifyCheckpoint(directory_.path());
  ASSERT_TRUE(report.ok()) << report.error().Message();
  EXPECT_TRUE(report->problems.empty()) << ::testing::PrintToString(report->problems);
  EXPECT_GE(report->checks.size(), 9u);
}

TEST_F(VerifyDamaged, WantsADirectory) {
  EXPECT_EQ(VerifyCheckpoint(directory_ / "absent").error().code, ErrorCode::kNotFound);
}

TEST_F(VerifyDamaged, NamesNonFiniteWeights) {
  const std::string path = directory_ / "vae/diffusion_pytorch_model.safetensors";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-8, std::ios::end);
  const float tail[2] = {std::nanf(""), std::numeric_limits<float>::infinity()};
  file.write(reinterpret_cast<const char*>(tail), sizeof(tail));
  file.close();
  ExpectOne({path, "2 of ", "values not finite"});
}

TEST_F(VerifyDamaged, NamesEveryDamagedFileAtOnce) {
  WriteFile(directory_ / "vae/config.json", "{");
  WriteFile(directory_ / "vae/diffusion_pytorch_model.safetensors", "<html>");
  std::filesystem::remove(directory_ / "tokenizer/merges.txt");
  std::filesystem::remove(directory_ /
                          "transformer/diffusion_pytorch_model-00001-of-00003.safetensors");
  EXPECT_EQ(Problems().size(), 4u) << ::testing::PrintToString(Problems());
}

TEST_F(VerifyDamaged, RefusesATokenizerWithAnotherTemplate) {
  // Without its added tokens every turn of the template is spelt out.
  std::filesystem::remove(directory_ / "tokenizer/added_tokens.json");
  std::filesystem::remove(directory_ / "tokenizer/tokenizer_config.json");
  ExpectOne({"the prompt template", "wanted 34 and 5"});
}

TEST_F(VerifyDamaged, RefusesIdsBeyondTheEmbedding) {
  std::string added = segue::testing::ReadFile(directory_ / "tokenizer/tokenizer_config.json");
  const size_t at = added.find("\"added_tokens_decoder\": {");
  ASSERT_NE(at, std::string::npos);
  added.insert(at + 25, R"("701": {"content": "<|extra|>"},)");
  WriteFile(directory_ / "tokenizer/tokenizer_config.json", added);
  ExpectOne({"largest id", "701", "vocab_size, 701"});
}

TEST_F(VerifyDamaged, RefusesTensorsOfAnotherShape) {
  ReplaceInFile(directory_ / "transformer/config.json", "\"num_layers\": 3", "\"num_layers\": 4");
  ExpectOne({"transformer", "transformer_blocks.3.", "other tensors"});
  ReplaceInFile(directory_ / "transformer/config.json", "\"num_layers\": 4", "\"num_layers\": 2");
  const std::vector<std::string> problems = Problems();
  EXPECT_EQ(problems.size(), 32u);  // a layer's tensors that the network does not have
}

}  // namespace
}  // namespace segue
