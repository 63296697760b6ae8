// The three networks, each fed the reference's own input, in float32.
#include <gtest/gtest.h>

#include <algorithm>

#include "parity/golden.h"
#include "parity/stages.h"

namespace segue::parity {
namespace {

class StageParity : public testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override {
    stages_ = Stages::Load(GetParam());
    ASSERT_NE(stages_, nullptr);
  }

  std::unique_ptr<Stages> stages_;
};

// All prompts in one packed forward; the reference ran each alone.
TEST_P(StageParity, TextRows) {
  const Golden golden(GetParam().name + "/text");
  ASSERT_TRUE(golden.MatchesWeightsOf(GetParam()));
  const std::vector<std::string> prompts = golden.Texts("prompts");
  const auto rows = stages_->EncodePrompts(prompts);
  ASSERT_EQ(rows.size(), prompts.size());
  const int64_t width = stages_->checkpoint().text_encoder_config().hidden_size;
  double worst = 0;
  int32_t most = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = std::to_string(i);
    const int32_t count = golden.Int(name + ".count");
    ASSERT_EQ(static_cast<int64_t>(rows[i].size()), count * width) << "prompt " << i;
    std::vector<float> chosen;
    for (const int32_t row : golden.Ints(name + ".rows")) {
      chosen.insert(chosen.end(), rows[i].begin() + row * width,
                    rows[i].begin() + (row + 1) * width);
    }
    const double error = RelativeError(chosen, golden.Floats(name + ".embeds"));
    EXPECT_LE(error, kStageBound) << "prompt " << i << ", " << count << " rows";
    worst = std::max(worst, error);
    most = std::max(most, count);
  }
  EXPECT_EQ(most, 512) << "a prompt at the limit is among them";
  Report(GetParam().name + " text rows", worst);
}

// Velocities at three steps of the recorded runs, from the recorded latents. The text rows are the
// engine's own, whose error TextRows bounds.
TEST_P(StageParity, VelocitiesOfTheRuns) {
  const Golden golden(GetParam().name + "/runs");
  ASSERT_TRUE(golden.MatchesWeightsOf(GetParam()));
  const std::vector<std::string> prompts = golden.Texts("prompts");
  const std::vector<std::string> negatives = golden.Texts("negatives");
  const auto text = stages_->EncodePrompts(prompts);
  const auto negative_text = stages_->EncodePrompts(negatives);
  ASSERT_EQ(text.size(), prompts.size());
  ASSERT_EQ(negative_text.size(), prompts.size());
  double worst = 0;
  for (size_t r = 0; r < prompts.size(); ++r) {
    const std::string run = std::to_string(r);
    const std::vector<int32_t> size = golden.Ints(run + ".size");
    ASSERT_EQ(size.size(), 2u);
    // All steps and both branches in one packed forward.
    std::vector<SequenceInput> sequences;
    std::vector<std::vector<float>> wanted;
    for (const int32_t kept : golden.Ints(run + ".kept")) {
      const std::string step = run + ".step." + std::to_string(kept);
      SequenceInput input = {.grid_height = size[1] / 16,
                             .grid_width = size[0] / 16,
                             .timestep = golden.Float(step + ".timestep"),
                             .latents = golden.Floats(step + ".input"),
                             .text = text[r]};
      sequences.push_back(input);
      wanted.push_back(golden.Floats(step + ".cond"));
      if (!golden.Has(step + ".uncond")) continue;
      input.text = negative_text[r];
      sequences.push_back(input);
      wanted.push_back(golden.Floats(step + ".uncond"));
    }
    const auto velocities = stages_->Velocities(sequences);
    ASSERT_EQ(velocities.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double error = RelativeError(velocities[i], wanted[i]);
      EXPECT_LE(error, kStageBound) << "run " << r << ", forward " << i;
      worst = std::max(worst, error);
    }
  }
  Report(GetParam().name + " velocities of the runs", worst);
}

// Samples and pixels from the recorded final latents.
TEST_P(StageParity, DecodedPictures) {
  const Golden golden(GetParam().name + "/runs");
  ASSERT_TRUE(golden.MatchesWeightsOf(GetParam()));
  int images = 0;
  double worst = 0;
  for (int r = 0; r < golden.Int("requests"); ++r) {
    const std::string run = std::to_string(r);
    const std::vector<int32_t> size = golden.Ints(run + ".size");
    ASSERT_EQ(size.size(), 2u);
    const DecodedPicture picture =
        stages_->Decode(golden.Floats(run + ".latents"), size[0], size[1]);
    ExpectPixelsNear(picture.pixels, golden.Bytes(run + ".pixels"));
    if (!golden.Has(run + ".image")) continue;
    ++images;
    std::vector<float> image = golden.Floats(run + ".image");  // [3, height, width], clamped
    ASSERT_EQ(image.size(), picture.samples.size());
    std::vector<float> planar(image.size());
    const size_t pixels = image.size() / 3;
    for (size_t i = 0; i < image.size(); ++i) {
      planar[i % 3 * pixels + i / 3] = picture.samples[i];
    }
    const double error = RelativeError(planar, image);
    EXPECT_LE(error, kStageBound) << "run " << r;
    worst = std::max(worst, error);
  }
  EXPECT_GE(images, 1);
  Report(GetParam().name + " decoded samples", worst);
}

INSTANTIATE_TEST_SUITE_P(Models, StageParity, testing::ValuesIn(Models()), ModelName);

// Ragged batches in one packed forward each: text rows 1, 5 and 512 (the limit), a grid of 83x42.
TEST(TransformerParity, RaggedBatchesOfTheTinyModel) {
  const Golden golden("tiny/transformer");
  ASSERT_TRUE(golden.MatchesWeightsOf(TinyModel()));
  const std::unique_ptr<Stages> stages = Stages::Load(TinyModel());
  ASSERT_NE(stages, nullptr);
  double worst = 0;
  for (int b = 0; b < golden.Int("batches"); ++b) {
    const std::vector<SequenceInput> sequences =
        RecordedSequences(golden, b, stages->checkpoint().dit_config());
    const auto velocities = stages->Velocities(sequences);
    ASSERT_EQ(velocities.size(), sequences.size());
    for (size_t s = 0; s < sequences.size(); ++s) {
      const std::string name = std::to_string(b) + "." + std::to_string(s) + ".velocity";
      const double error = RelativeError(velocities[s], golden.Floats(name));
      EXPECT_LE(error, kStageBound) << name;
      worst = std::max(worst, error);
    }
  }
  Report("tiny velocities of ragged batches", worst);
}

}  // namespace
}  // namespace segue::parity
