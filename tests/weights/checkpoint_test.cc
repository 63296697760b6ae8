// Whole checkpoint directories, sound and damaged.
#include "model/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;
using segue::testing::ReplaceInFile;
using segue::testing::TempDirectory;
using segue::testing::WriteFile;

const std::string kTiny = std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model";

// A copy of the tiny checkpoint that a test may damage.
class DamagedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(kTiny, directory_.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
  }

  Error Refusal() const {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(directory_.path());
    if (checkpoint.ok()) {
      ADD_FAILURE() << "accepted";
      return {};
    }
    return checkpoint.error();
  }

  TempDirectory directory_;
};

TEST(Checkpoint, OpensTheTinyOne) {
  const auto checkpoint = Checkpoint::Open(kTiny);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  EXPECT_EQ(checkpoint->dit_config().num_layers, 3);
  EXPECT_EQ(checkpoint->dit_config().hidden(), 42);
  EXPECT_EQ(checkpoint->text_encoder_config().hidden_size, 60);
  EXPECT_EQ(checkpoint->vae_config().z_dim, 5);
  EXPECT_TRUE(checkpoint->flow_match_config().use_dynamic_shifting);
  EXPECT_EQ(checkpoint->transformer().files().size(), 3u);
  EXPECT_TRUE(checkpoint->text_encoder().Contains(checkpoint->text_embedding_name()));
  EXPECT_TRUE(checkpoint->text_encoder().Contains(checkpoint->text_prefix() + "norm.weight"));
  EXPECT_EQ(checkpoint->classes().transformer, "QwenImageTransformer2DModel");
}

// Configurations alone are enough for a random one, and Open says that the weights are missing.
TEST_F(DamagedCheckpoint, RandomWeightsNeedConfigurationsOnly) {
  for (const char* component : {"transformer", "text_encoder", "vae"}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / component)) {
      if (entry.path().filename() != "config.json") std::filesystem::remove(entry.path());
    }
  }
  EXPECT_EQ(Refusal().code, ErrorCode::kNotFound);
  const auto checkpoint = Checkpoint::OpenRandom(directory_.path(), 1);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  EXPECT_EQ(checkpoint->dit_config().num_layers, 3);
  EXPECT_TRUE(checkpoint->transformer().random());
  EXPECT_TRUE(checkpoint->transformer().Locate("anything", {3}).ok());
  EXPECT_TRUE(checkpoint->text_encoder().Locate(checkpoint->text_embedding_name(), {50, 60}).ok());
  std::filesystem::remove(directory_ / "vae/config.json");
  EXPECT_EQ(Checkpoint::OpenRandom(directory_.path(), 1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Checkpoint::OpenRandom(directory_ / "absent", 1).error().code, ErrorCode::kNotFound);
}

TEST(Checkpoint, WantsADirectory) {
  const Error error = Checkpoint::Open(kTiny + "/absent").error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_TRUE(Mentions(error, {"absent", "model_index.json"}));
}

TEST_F(DamagedCheckpoint, NamesEveryMissingFile) {
  for (const char* name :
       {"model_index.json", "transformer/config.json", "text_encoder/config.json",
        "vae/config.json", "scheduler/scheduler_config.json",
        "transformer/diffusion_pytorch_model-00002-of-00003.safetensors",
        "vae/diffusion_pytorch_model.safetensors"}) {
    std::filesystem::rename(directory_ / name, directory_ / "hidden");
    const Error error = Refusal();
    EXPECT_EQ(error.code, ErrorCode::kNotFound) << name;
    EXPECT_TRUE(Mentions(error, {std::filesystem::path(name).filename().string()}));
    std::filesystem::rename(directory_ / "hidden", directory_ / name);
  }
  EXPECT_TRUE(Checkpoint::Open(directory_.path()).ok());
  // Defaults of the model are optional.
  std::filesystem::remove(directory_ / "segue.json");
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  EXPECT_EQ(checkpoint->defaults().width, 1024);
}

TEST_F(DamagedCheckpoint, RefusesConfigurationsThatAreNotJson) {
  for (const char* name :
       {"model_index.json", "transformer/config.json", "vae/config.json",
        "text_encoder/config.json", "scheduler/scheduler_config.json", "segue.json"}) {
    const std::string text = segue::testing::ReadFile(directory_ / name);
    WriteFile(directory_ / name, "<html>404</html>");
    EXPECT_TRUE(Mentions(Refusal(), {name})) << name;
    WriteFile(directory_ / name, text);
  }
}

TEST_F(DamagedCheckpoint, RefusesComponentsThatDoNotFit) {
  ReplaceInFile(directory_ / "transformer/config.json", "\"joint_attention_dim\": 60",
                "\"joint_attention_dim\": 64");
  EXPECT_TRUE(Mentions(Refusal(), {"joint_attention_dim", "64", "hidden_size, 60"}));
  ReplaceInFile(directory_ / "transformer/config.json", "\"joint_attention_dim\": 64",
                "\"joint_attention_dim\": 60");
  ReplaceInFile(directory_ / "transformer/config.json", "\"in_channels\": 20",
                "\"in_channels\": 24");
  ReplaceInFile(directory_ / "transformer/config.json", "\"out_channels\": 5",
                "\"out_channels\": 6");
  EXPECT_TRUE(Mentions(Refusal(), {"in_channels", "24", "z_dim, 20"}));
}

TEST_F(DamagedCheckpoint, RefusesAPointerInPlaceOfWeights) {
  WriteFile(directory_ / "vae/diffusion_pytorch_model.safetensors",
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 253806966\n");
  EXPECT_TRUE(Mentions(Refusal(), {"vae/diffusion_pytorch_model.safetensors", "Git LFS pointer"}));
}

// The text encoder's names by every writer.
class TextPrefix : public DamagedCheckpoint {
 protected:
  // One file of two tensors in place of the tiny encoder's shards.
  void WriteEncoder(const std::string& norm, const std::string& embedding) {
    for (const auto& file : std::filesystem::directory_iterator(directory_ / "text_encoder")) {
      if (file.path().filename() != "config.json") std::filesystem::remove(file.path());
    }
    const std::vector<float> zeros(701 * 60);
    ASSERT_TRUE(WriteTensorFile(directory_ / "text_encoder/model.safetensors",
                                {{norm, {zeros.data(), DType::kF32, {60}}},
                                 {embedding, {zeros.data(), DType::kF32, {701, 60}}}})
                    .ok());
  }
};

TEST_F(TextPrefix, KnowsEveryPrefix) {
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model."}) {
    WriteEncoder(std::string(prefix) + "norm.weight", std::string(prefix) + "embed_tokens.weight");
    const auto checkpoint = Checkpoint::Open(directory_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    EXPECT_EQ(checkpoint->text_prefix(), prefix);
    EXPECT_EQ(checkpoint->text_embedding_name(), std::string(prefix) + "embed_tokens.weight");
  }
  WriteEncoder("bert.norm.weight", "bert.embed_tokens.weight");
  EXPECT_TRUE(Mentions(Refusal(), {"text_encoder", "model.language_model."}));
}

TEST_F(TextPrefix, FindsATiedEmbeddingUnderTheHead) {
  WriteEncoder("model.norm.weight", "lm_head.weight");
  // Without a tie the head is another tensor, and the embedding is missing.
  EXPECT_EQ(Checkpoint::Open(directory_.path())->text_embedding_name(),
            "model.embed_tokens.weight");
  ReplaceInFile(directory_ / "text_encoder/config.json", "\"tie_word_embeddings\": false",
                "\"tie_word_embeddings\": true");
  EXPECT_EQ(Checkpoint::Open(directory_.path())->text_embedding_name(), "lm_head.weight");
}

}  // namespace
}  // namespace segue::model
