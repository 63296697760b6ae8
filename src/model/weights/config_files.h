// Reads the JSON configurations of a checkpoint into the plain structs of the networks.
//
// Each function takes a file's text, so that it can be tested and fuzzed without a file system;
// `file` is for error messages only. Keys that nobody reads are ignored (writers add many, some
// dead); keys that ask for a variant the engine does not do are errors (kUnsupported). What comes
// back has passed its Validate(). Errors name file and field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/flow_match_config.h"
#include "model/dit/config.h"
#include "model/text_encoder/config.h"
#include "model/vae/config.h"
#include "segue/engine.h"
#include "segue/status.h"

namespace segue::model {

// Configurations take a few kilobytes.
inline constexpr int64_t kMaxConfigBytes = int64_t{4} << 20;

// Class names of model_index.json's components.
struct PipelineClasses {
  std::string scheduler;
  std::string text_encoder;
  std::string tokenizer;
  std::string transformer;
  std::string vae;
};

// model_index.json: a QwenImagePipeline of the classes the engine knows.
Result<PipelineClasses> ParseModelIndex(std::string_view text, const std::string& file);
Result<DitConfig> ParseDitConfig(std::string_view text, const std::string& file);
// Flat (transformers 4) or nested under text_config (transformers 5).
Result<TextEncoderConfig> ParseTextEncoderConfig(std::string_view text, const std::string& file);
Result<VaeConfig> ParseVaeConfig(std::string_view text, const std::string& file);
Result<FlowMatchConfig> ParseFlowMatchConfig(std::string_view text, const std::string& file);
// segue.json: {"size": "WxH", "steps": n, "guidance": x, "negative_prompt": "..."}, all optional.
Result<ModelDefaults> ParseModelDefaults(std::string_view text, const std::string& file);

}  // namespace segue::model
