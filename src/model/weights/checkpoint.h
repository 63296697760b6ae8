// A checkpoint directory in diffusers' QwenImagePipeline layout: configurations and weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/flow_match_config.h"
#include "model/dit/config.h"
#include "model/text_encoder/config.h"
#include "model/vae/config.h"
#include "model/weights/config_files.h"
#include "model/weights/tensor_table.h"
#include "segue/engine.h"
#include "segue/status.h"

namespace segue::model {

// Const after opening. Only headers and configurations are read; weights stay in their mappings.
class Checkpoint {
 public:
  // Errors name file and field: a directory or file that is missing, a pipeline or component of
  // another class, a configuration that is malformed or asks for a variant the engine does not
  // do, sizes of two components that do not fit together, and what TensorTable::Open refuses.
  static Result<Checkpoint> Open(const std::string& directory);
  // The same configurations, but the weights are random ones of this seed (TensorTable::Random)
  // whatever the directory holds: a full-size model out of a few kilobytes. Views of them come from
  // a WeightStore only.
  static Result<Checkpoint> OpenRandom(const std::string& directory, uint64_t seed);

  const std::string& directory() const { return directory_; }
  std::string tokenizer_directory() const { return directory_ + "/tokenizer"; }

  const PipelineClasses& classes() const { return classes_; }
  const DitConfig& dit_config() const { return dit_config_; }
  const TextEncoderConfig& text_encoder_config() const { return text_encoder_config_; }
  const VaeConfig& vae_config() const { return vae_config_; }
  const FlowMatchConfig& flow_match_config() const { return flow_match_config_; }
  // segue.json's, or the engine's own where the file or a key is absent.
  const ModelDefaults& defaults() const { return defaults_; }

  const TensorTable& transformer() const { return transformer_; }
  const TensorTable& text_encoder() const { return text_encoder_; }
  const TensorTable& vae() const { return vae_; }
  // What precedes "layers.0..." in the text encoder's names: "model.", "model.language_model." or
  // "language_model.model.", by which writer saved it.
  const std::string& text_prefix() const { return text_prefix_; }
  // Name of the token embedding, [vocab_size, hidden_size]. With tied embeddings a file may hold
  // it as the output head only.
  const std::string& text_embedding_name() const { return text_embedding_name_; }

 private:
  Checkpoint() = default;
  Status OpenConfigs(const std::string& directory);
  Status ReadConfigs();
  Status OpenTables();
  Status CheckTogether() const;

  std::string directory_;
  PipelineClasses classes_;
  DitConfig dit_config_;
  TextEncoderConfig text_encoder_config_;
  VaeConfig vae_config_;
  FlowMatchConfig flow_match_config_;
  ModelDefaults defaults_;
  TensorTable transformer_;
  TensorTable text_encoder_;
  TensorTable vae_;
  std::string text_prefix_;
  std::string text_embedding_name_;
};

}  // namespace segue::model
