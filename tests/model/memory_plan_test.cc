#include "model/memory_plan.h"

#include <gtest/gtest.h>

namespace segue::model {
namespace {

ModelConfig QwenImageSizes() {
  ModelConfig config;
  config.text_encoder.hidden_size = 3584;
  config.text_encoder.intermediate_size = 18944;
  config.text_encoder.num_hidden_layers = 28;
  config.text_encoder.num_attention_heads = 28;
  config.text_encoder.num_key_value_heads = 4;
  config.text_encoder.vocab_size = 152064;
  config.text_encoder.max_position_embeddings = 128000;
  return config;
}

// The blocks of the layouts, added up by hand for 1024 x 1024 with guidance.
TEST(MemoryPlan, QwenImageAt1024) {
  const ActivationPlan plan = PlanActivations(
      QwenImageSizes(), 1,
      {.grid_height = 64, .grid_width = 64, .sequences = 2, .text_rows = 512, .dropped = 34});
  const int64_t image = 2 * 4096, text = 2 * 512, hidden = 3072;
  EXPECT_EQ(plan.request, 4 * (4096 * 64 + 2 * 512 * hidden));
  EXPECT_EQ(plan.transformer, 4 * (image * 64 * 2 + (image + text) * 6 * hidden +
                                   (60 * 12 + 2) * hidden + 256 + 2 * hidden));
  const int64_t ids = 2 * 546;
  EXPECT_EQ(plan.text_encoder,
            4 * (text * 3584 + ids * (2 * 3584 + 4608 + 3584 + 2 * 18944) + 2 * 546 * 64) +
                2 * ((4 * ids + 255) / 256 * 256));
  const int64_t pixels = 1024 * 1024;
  // Three maps of 96 channels at full size, the latents and the samples.
  EXPECT_EQ(plan.vae, 4 * (pixels / 64 * 16 + pixels * 3 + 3 * pixels * 96));
  EXPECT_EQ(plan.peak(), plan.request + plan.vae);
}

TEST(MemoryPlan, RanksShareWhatIsSharded) {
  const ModelConfig config = QwenImageSizes();
  EXPECT_LT(DenoiseBytes(config, 2, 8192, 64, 1), DenoiseBytes(config, 1, 8192, 64, 1));
  // Text's feed-forward network is whole on two ranks; one rank alone encodes.
  EXPECT_EQ(DenoiseBytes(config, 2, 0, 64, 1), DenoiseBytes(config, 1, 0, 64, 1));
  EXPECT_LT(DenoiseBytes(config, 4, 0, 64, 1), DenoiseBytes(config, 2, 0, 64, 1));
  const std::vector<int64_t> lengths = {40, 39};
  EXPECT_EQ(EncodeBytes(config, 4, lengths, 34), EncodeBytes(config, 1, lengths, 34));
}

}  // namespace
}  // namespace segue::model
