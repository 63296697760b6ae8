#include "model/weights/config_files.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;

// The real checkpoint's configurations, as far as they matter.
constexpr char kDit[] = R"({
  "_class_name": "QwenImageTransformer2DModel", "_diffusers_version": "0.34.0.dev0",
  "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": false,
  "in_channels": 64, "joint_attention_dim": 3584, "num_attention_heads": 24, "num_layers": 60,
  "out_channels": 16, "patch_size": 2, "pooled_projection_dim": 768})";
constexpr char kFlatText[] = R"({
  "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
  "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
  "max_position_embeddings": 128000, "num_attention_heads": 28, "num_hidden_layers": 28,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
  "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": false,
  "use_sliding_window": false, "vision_config": {"hidden_size": 1280}, "vocab_size": 152064})";
constexpr char kNestedText[] = R"({
  "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
  "text_config": {
    "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
    "layer_types": ["full_attention", "full_attention"], "max_position_embeddings": 128000,
    "model_type": "qwen2_5_vl_text", "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_parameters": {"mrope_section": [16, 24, 24], "rope_theta": 1000000.0,
                        "rope_type": "default"},
    "sliding_window": null, "use_sliding_window": false, "vocab_size": 152064},
  "tie_word_embeddings": false, "vision_config": {"hidden_size": 1280}})";
constexpr char kSchedule[] = R"({
  "_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256,
  "base_shift": 0.5, "invert_sigmas": false, "max_image_seq_len": 8192, "max_shift": 0.9,
  "num_train_timesteps": 1000, "shift": 1.0, "shift_terminal": 0.02,
  "stochastic_sampling": false, "time_shift_type": "exponential", "use_beta_sigmas": false,
  "use_dynamic_shifting": true, "use_exponential_sigmas": false, "use_karras_sigmas": false})";
constexpr char kPipeline[] = R"({
  "_class_name": "QwenImagePipeline", "_diffusers_version": "0.34.0.dev0",
  "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
  "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
  "tokenizer": ["transformers", "Qwen2Tokenizer"],
  "transformer": ["diffusers", "QwenImageTransformer2DModel"],
  "vae": ["diffusers", "AutoencoderKLQwenImage"]})";

// A text with its one occurrence of `from` replaced.
std::string With(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

template <typename Config>
Error Refusal(const Result<Config>& result) {
  if (result.ok()) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  return result.error();
}

TEST(DitConfigFile, ReadsTheRealOne) {
  const auto config = ParseDitConfig(kDit, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().Message();
  EXPECT_EQ(config->num_layers, 60);
  EXPECT_EQ(config->hidden(), 3072);
  EXPECT_EQ(config->mlp_hidden(), 12288);
  EXPECT_EQ(config->proj_channels(), 64);
  // A class's defaults stand in for absent keys.
  EXPECT_EQ(ParseDitConfig("{}", "config.json")->joint_attention_dim, 3584);
}

TEST(DitConfigFile, RefusesVariants) {
  for (const char* flag : {"zero_cond_t", "use_additional_t_cond", "use_layer3d_rope"}) {
    const std::string text = With(kDit, "{", std::string("{\"") + flag + "\": true,");
    const Error error = Refusal(ParseDitConfig(text, "config.json"));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_TRUE(Mentions(error, {"config.json", flag, "true", "false"}));
    EXPECT_TRUE(ParseDitConfig(With(text, "true", "false"), "config.json").ok());
  }
  EXPECT_EQ(Refusal(ParseDitConfig(
                        With(kDit, "\"guidance_embeds\": false", "\"guidance_embeds\": true"), "c"))
                .code,
            ErrorCode::kUnsupported);
  EXPECT_TRUE(
      Mentions(Refusal(ParseDitConfig(
                   With(kDit, "QwenImageTransformer2DModel", "FluxTransformer2DModel"), "c")),
               {"_class_name", "FluxTransformer2DModel"}));
  EXPECT_TRUE(
      Mentions(Refusal(ParseDitConfig(
                   With(kDit, "{", R"({"quantization_config":{"quant_method":"fp8"},)"), "c")),
               {"quantization_config", "fp8"}));
}

TEST(DitConfigFile, RefusesBadSizes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\"num_layers\": 60", "\"num_layers\": 0"},
      {"\"num_layers\": 60", "\"num_layers\": -1"},
      {"\"num_layers\": 60", "\"num_layers\": 60.5"},
      {"\"num_layers\": 60", "\"num_layers\": \"60\""},
      {"\"num_layers\": 60", "\"num_layers\": 9223372036854775807"},
      {"\"num_attention_heads\": 24", "\"num_attention_heads\": 4294967296"},
      {"\"attention_head_dim\": 128", "\"attention_head_dim\": 127"},
      {"\"joint_attention_dim\": 3584", "\"joint_attention_dim\": 0"},
      {"[16, 56, 56]", "[16, 56, 55]"},
      {"[16, 56, 56]", "[17, 55, 56]"},
      {"[16, 56, 56]", "[16, 56]"},
      {"[16, 56, 56]", "[16, 56, 56, 0]"},
      {"[16, 56, 56]", "[-16, 88, 56]"},
      {"[16, 56, 56]", "16"},
      {"\"patch_size\": 2", "\"patch_size\": 1"},
      {"\"out_channels\": 16", "\"out_channels\": 15"},
      {"\"in_channels\": 64", "\"in_channels\": 65"},
  };
  for (const auto& [from, to] : cases) {
    EXPECT_TRUE(Mentions(Refusal(ParseDitConfig(With(kDit, from, to), "c.json")), {"c.json"}))
        << to;
  }
}

TEST(TextEncoderConfigFile, ReadsBothForms) {
  for (const char* text : {kFlatText, kNestedText}) {
    const auto config = ParseTextEncoderConfig(text, "config.json");
    ASSERT_TRUE(config.ok()) << config.error().Message();
    EXPECT_EQ(config->hidden_size, 3584);
    EXPECT_EQ(config->intermediate_size, 18944);
    EXPECT_EQ(config->num_hidden_layers, 28);
    EXPECT_EQ(config->num_attention_heads, 28);
    EXPECT_EQ(config->num_key_value_heads, 4);
    EXPECT_EQ(config->head_dim(), 128);
    EXPECT_EQ(config->vocab_size, 152064);
    EXPECT_EQ(config->max_position_embeddings, 128000);
    EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-6);
    EXPECT_DOUBLE_EQ(config->rope_theta, 1e6);
    EXPECT_FALSE(config->tie_word_embeddings);
  }
}

TEST(TextEncoderConfigFile, ReadsEveryPlaceOfTheRotaryBase) {
  const auto theta = [](const std::string& text) {
    const auto config = ParseTextEncoderConfig(text, "c");
    return config.ok() ? config->rope_theta : -1;
  };
  EXPECT_DOUBLE_EQ(theta(With(kFlatText, "1000000.0", "10000.0")), 10000);
  EXPECT_DOUBLE_EQ(theta(With(kNestedText, "1000000.0", "10000.0")), 10000);
  EXPECT_DOUBLE_EQ(
      theta(With(kFlatText, "\"mrope_section\"", "\"rope_theta\": 500.0, \"mrope_section\"")), 500);
  EXPECT_DOUBLE_EQ(theta(With(kNestedText, "\"rope_theta\": 1000000.0,", "")), 1e6);
  EXPECT_DOUBLE_EQ(theta(With(kFlatText, "\"type\": \"default\"", "\"type\": \"mrope\"")), 1e6);
}

TEST(TextEncoderConfigFile, ReadsTiesInEitherPlace) {
  EXPECT_TRUE(
      ParseTextEncoderConfig(
          With(kNestedText, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"), "c")
          ->tie_word_embeddings);
  EXPECT_TRUE(ParseTextEncoderConfig(With(kNestedText, "\"hidden_size\": 3584",
                                          "\"tie_word_embeddings\":true,\"hidden_size\": 3584"),
                                     "c")
                  ->tie_word_embeddings);
}

TEST(TextEncoderConfigFile, ReadsAbsentKeyValueHeadsAsTransformersDoes) {
  EXPECT_EQ(ParseTextEncoderConfig(
                With(kFlatText, "\"num_key_value_heads\": 4", "\"num_key_value_heads\": null"), "c")
                ->num_key_value_heads,
            28);
}

TEST(TextEncoderConfigFile, RefusesVariantsAndBadSizes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""},
      {"\"use_sliding_window\": false", "\"use_sliding_window\": true"},
      {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\""},
      {"[16, 24, 24]", "[16, 24, 25]"},
      {"[16, 24, 24]", "[-16, 56, 24]"},
      {"[16, 24, 24]", "[9223372036854775807, 9223372036854775807, 24]"},
      {"\"model_type\": \"qwen2_5_vl\"", "\"model_type\": \"qwen3_vl\""},
      {"[\"Qwen2_5_VLForConditionalGeneration\"]", "[\"Qwen3VLForConditionalGeneration\"]"},
      {"\"num_attention_heads\": 28", "\"num_attention_heads\": 27"},
      {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 5"},
      {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 29"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0"},
      {"\"vocab_size\": 152064", "\"vocab_size\": 0"},
      {"\"vocab_size\": 152064", "\"vocab_size\": 152064, \"head_dim\": 64"},
      {"\"vocab_size\": 152064", "\"vocab_size\": 152064, \"quantization_config\": {}"},
      {"\"hidden_size\": 3584", "\"hidden_size\": [3584]"},
  };
  for (const char* text : {kFlatText, kNestedText}) {
    for (const auto& [from, to] : cases) {
      EXPECT_TRUE(
          Mentions(Refusal(ParseTextEncoderConfig(With(text, from, to), "c.json")), {"c.json"}))
          << to;
    }
  }
  EXPECT_TRUE(
      Mentions(Refusal(ParseTextEncoderConfig(
                   With(kNestedText, "\"full_attention\"", "\"sliding_attention\""), "c.json")),
               {"c.json: text_config.layer_types", "sliding_attention"}));
}

TEST(VaeConfigFile, ReadsDefaultsAndTheFilesSpelling) {
  const auto config = ParseVaeConfig(
      R"({"temperal_downsample":[true,false,true],"pooled_projection_dim":768})", "c.json");
  ASSERT_TRUE(config.ok()) << config.error().Message();
  EXPECT_EQ(config->temporal_downsample, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(config->base_dim, 96);
  EXPECT_EQ(config->latents_mean.size(), 16u);
  EXPECT_EQ(config->spatial_scale(), 8);
}

TEST(VaeConfigFile, RefusesBadValues) {
  for (const char* text : {R"({"z_dim":4})",
                           R"({"z_dim":0})",
                           R"({"base_dim":0})",
                           R"({"base_dim":1e9})",
                           R"({"dim_mult":[1,2,4]})",
                           R"({"dim_mult":[1,2,4,0]})",
                           R"({"dim_mult":[1,2,4,4.5]})",
                           R"({"base_dim":3,"dim_mult":[1,2,3,4]})",
                           R"({"num_res_blocks":0})",
                           R"({"input_channels":4})",
                           R"({"temperal_downsample":[true]})",
                           R"({"temperal_downsample":[0,1,1]})",
                           R"({"z_dim":1,"latents_mean":[0],"latents_std":[0]})",
                           R"({"z_dim":1,"latents_mean":[1e300],"latents_std":[1]})",
                           R"({"z_dim":1,"latents_mean":[0],"latents_std":[-1]})",
                           R"({"_class_name":"AutoencoderKL"})",
                           R"({"latents_mean":"x"})",
                           "[]",
                           "3",
                           "{"}) {
    EXPECT_TRUE(Mentions(Refusal(ParseVaeConfig(text, "c.json")), {"c.json"})) << text;
  }
}

TEST(FlowMatchConfigFile, ReadsTheRealOne) {
  const auto config = ParseFlowMatchConfig(kSchedule, "c.json");
  ASSERT_TRUE(config.ok()) << config.error().Message();
  EXPECT_TRUE(config->use_dynamic_shifting);
  EXPECT_DOUBLE_EQ(config->max_shift, 0.9);
  EXPECT_EQ(config->max_image_seq_len, 8192);
  EXPECT_EQ(config->shift_terminal, 0.02);
  // The class's defaults are not Qwen-Image's values.
  const auto defaults = ParseFlowMatchConfig("{}", "c.json");
  ASSERT_TRUE(defaults.ok());
  EXPECT_DOUBLE_EQ(defaults->max_shift, 1.15);
  EXPECT_EQ(defaults->max_image_seq_len, 4096);
  EXPECT_FALSE(defaults->shift_terminal.has_value());
  EXPECT_FALSE(ParseFlowMatchConfig(R"({"shift_terminal":null})", "c")->shift_terminal);
  EXPECT_FALSE(ParseFlowMatchConfig(R"({"shift_terminal":0.0})", "c")->shift_terminal);
  EXPECT_EQ(ParseFlowMatchConfig(R"({"time_shift_type":"linear"})", "c")->time_shift,
            TimeShift::kLinear);
}

TEST(FlowMatchConfigFile, RefusesOtherSchedules) {
  for (const char* flag : {"invert_sigmas", "stochastic_sampling", "use_karras_sigmas",
                           "use_exponential_sigmas", "use_beta_sigmas"}) {
    const Error error =
        Refusal(ParseFlowMatchConfig(std::string("{\"") + flag + "\":true}", "c.json"));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_TRUE(Mentions(error, {"c.json", flag}));
  }
  for (const char* text :
       {R"({"time_shift_type":"cubic"})", R"({"shift":0})", R"({"shift_terminal":1})",
        R"({"shift_terminal":-0.5})", R"({"max_image_seq_len":256})",
        R"({"num_train_timesteps":0})", R"({"_class_name":"DDIMScheduler"})"}) {
    EXPECT_TRUE(Mentions(Refusal(ParseFlowMatchConfig(text, "c.json")), {"c.json"})) << text;
  }
}

TEST(ModelIndexFile, KnowsItsClasses) {
  const auto classes = ParseModelIndex(kPipeline, "m.json");
  ASSERT_TRUE(classes.ok()) << classes.error().Message();
  EXPECT_EQ(classes->vae, "AutoencoderKLQwenImage");
  EXPECT_TRUE(ParseModelIndex(With(kPipeline, "Qwen2Tokenizer", "Qwen2TokenizerFast"), "m").ok());
  for (const char* name : {"QwenImagePipeline", "FlowMatchEulerDiscreteScheduler",
                           "Qwen2_5_VLForConditionalGeneration", "Qwen2Tokenizer",
                           "QwenImageTransformer2DModel", "AutoencoderKLQwenImage"}) {
    const Error error = Refusal(ParseModelIndex(With(kPipeline, name, "Other"), "m.json"));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_TRUE(Mentions(error, {"m.json", "\"Other\"", name}));
  }
}

TEST(ModelIndexFile, NamesMissingKeys) {
  for (const char* key :
       {"_class_name", "scheduler", "text_encoder", "tokenizer", "transformer", "vae"}) {
    const std::string quoted = std::string("\"") + key + "\"";
    const Error error = Refusal(ParseModelIndex(With(kPipeline, quoted, "\"renamed\""), "m.json"));
    EXPECT_EQ(error.code, ErrorCode::kNotFound) << key;
    EXPECT_TRUE(Mentions(error, {"m.json", key}));
  }
  EXPECT_FALSE(
      ParseModelIndex(
          With(kPipeline, R"(["diffusers", "AutoencoderKLQwenImage"])", R"([null, null])"), "m")
          .ok());
  EXPECT_FALSE(ParseModelIndex("not JSON", "m").ok());
}

TEST(ModelDefaultsFile, ReadsSettings) {
  const auto defaults = ParseModelDefaults(
      R"({"size":"128x96","steps":20,"guidance":3.5,"negative_prompt":"blurry","sizes":[]})", "s");
  ASSERT_TRUE(defaults.ok()) << defaults.error().Message();
  EXPECT_EQ(defaults->width, 128);
  EXPECT_EQ(defaults->height, 96);
  EXPECT_EQ(defaults->steps, 20);
  EXPECT_DOUBLE_EQ(defaults->guidance, 3.5);
  EXPECT_EQ(defaults->negative_prompt, "blurry");
  EXPECT_EQ(ParseModelDefaults("{}", "s")->width, 1024);
  for (const char* text :
       {R"({"size":"128"})", R"({"size":"128x"})", R"({"size":"120x128"})", R"({"size":"0x16"})",
        R"({"size":"-16x16"})", R"({"size":"99999999999x16"})", R"({"size":"16x16x16"})",
        R"({"size":128})", R"({"steps":0})", R"({"steps":1001})", R"({"guidance":-1})",
        R"({"guidance":"4"})", R"({"negative_prompt":4})"}) {
    EXPECT_TRUE(Mentions(Refusal(ParseModelDefaults(text, "s.json")), {"s.json"})) << text;
  }
}

}  // namespace
}  // namespace segue::model
