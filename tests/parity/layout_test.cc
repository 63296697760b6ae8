// One text encoder in the layouts that transformers 4 and 5 write.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "parity/golden.h"
#include "parity/stages.h"

namespace segue::parity {
namespace {

namespace fs = std::filesystem;

// A copy of the tiny checkpoint, by links, whose text encoder is written anew.
class TextEncoderLayout : public testing::Test {
 protected:
  void SetUp() override {
    source_ = TinyModel().directory;
    copy_ = fs::temp_directory_path() / ("segue_layout_" + std::to_string(getpid()));
    fs::create_directories(copy_ / "text_encoder");
    for (const auto& entry : fs::directory_iterator(source_)) {
      if (entry.path().filename() != "text_encoder") {
        fs::create_symlink(entry.path(), copy_ / entry.path().filename());
      }
    }
    const auto checkpoint = model::Checkpoint::Open(source_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    original_ = Encode(source_);
    ASSERT_EQ(original_.size(), 3u);
  }
  void TearDown() override { fs::remove_all(copy_); }

  static std::vector<std::vector<float>> Encode(const std::string& directory) {
    const std::unique_ptr<Stages> stages = Stages::Load({.name = "copy", .directory = directory});
    if (stages == nullptr) return {};
    const std::vector<std::string> prompts = {"a cat", "", "\xe4\xb8\x80 <|im_end|>"};
    return stages->EncodePrompts(prompts);
  }

  void WriteConfig(bool nested) const {
    fs::copy_file(nested ? fs::path(source_).parent_path() / "nested_text_config.json"
                         : fs::path(source_) / "text_encoder/config.json",
                  copy_ / "text_encoder/config.json");
  }

  // All weights in one file, `language` and `vision` in place of "model." and "visual.".
  void WriteWeights(const std::string& language, const std::string& vision) const {
    const auto checkpoint = model::Checkpoint::Open(source_);
    ASSERT_TRUE(checkpoint.ok());
    std::vector<model::NamedTensor> tensors;
    for (const auto& item : checkpoint->text_encoder().items()) {
      std::string name = item.entry->name;
      if (name.starts_with("model.")) name = language + name.substr(6);
      if (name.starts_with("visual.")) name = vision + name.substr(7);
      tensors.push_back({.name = name, .view = item.file->View(*item.entry)});
    }
    const Status written =
        model::WriteTensorFile((copy_ / "text_encoder/model.safetensors").string(), tensors);
    ASSERT_TRUE(written.ok()) << written.error().Message();
  }

  std::string source_;
  fs::path copy_;
  std::vector<std::vector<float>> original_;
};

TEST_F(TextEncoderLayout, NestedConfigurationOfTransformers5) {
  WriteConfig(true);
  WriteWeights("model.", "visual.");
  EXPECT_EQ(Encode(copy_.string()), original_);
}

TEST_F(TextEncoderLayout, NestedConfigurationAndLongPrefix) {
  WriteConfig(true);
  WriteWeights("model.language_model.", "model.visual.");
  EXPECT_EQ(Encode(copy_.string()), original_);
}

TEST_F(TextEncoderLayout, FlatConfigurationAndLongPrefix) {
  WriteConfig(false);
  WriteWeights("model.language_model.", "model.visual.");
  EXPECT_EQ(Encode(copy_.string()), original_);
}

}  // namespace
}  // namespace segue::parity
