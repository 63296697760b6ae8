#include "model/weights/checkpoint.h"

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "model/weights/config_files.h"
#include "model/weights/json.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "open checkpoint";

template <typename Config>
Status ReadConfig(const std::string& path,
                  Result<Config> (*parse)(std::string_view, const std::string&), Config* config) {
  SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  SEGUE_ASSIGN_OR_RETURN(*config, parse(text, path));
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  SEGUE_RETURN_IF_ERROR(checkpoint.OpenConfigs(directory));
  SEGUE_RETURN_IF_ERROR(checkpoint.OpenTables());
  return checkpoint;
}

Result<Checkpoint> Checkpoint::OpenRandom(const std::string& directory, uint64_t seed) {
  Checkpoint checkpoint;
  SEGUE_RETURN_IF_ERROR(checkpoint.OpenConfigs(directory));
  checkpoint.transformer_ = TensorTable::Random(seed, "transformer");
  checkpoint.text_encoder_ = TensorTable::Random(seed, "text_encoder");
  checkpoint.vae_ = TensorTable::Random(seed, "vae");
  checkpoint.text_prefix_ = "model.";
  checkpoint.text_embedding_name_ = "model.embed_tokens.weight";
  return checkpoint;
}

Status Checkpoint::OpenConfigs(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return Error{ErrorCode::kNotFound, kOperation, directory, "no directory",
                 "a checkpoint directory with a model_index.json"};
  }
  directory_ = directory;
  SEGUE_RETURN_IF_ERROR(ReadConfigs());
  return CheckTogether();
}

Status Checkpoint::ReadConfigs() {
  SEGUE_RETURN_IF_ERROR(ReadConfig(directory_ + "/model_index.json", &ParseModelIndex, &classes_));
  SEGUE_RETURN_IF_ERROR(
      ReadConfig(directory_ + "/transformer/config.json", &ParseDitConfig, &dit_config_));
  SEGUE_RETURN_IF_ERROR(ReadConfig(directory_ + "/text_encoder/config.json",
                                   &ParseTextEncoderConfig, &text_encoder_config_));
  SEGUE_RETURN_IF_ERROR(ReadConfig(directory_ + "/vae/config.json", &ParseVaeConfig, &vae_config_));
  SEGUE_RETURN_IF_ERROR(ReadConfig(directory_ + "/scheduler/scheduler_config.json",
                                   &ParseFlowMatchConfig, &flow_match_config_));
  const std::string defaults = directory_ + "/segue.json";
  std::error_code error;
  if (!std::filesystem::exists(defaults, error)) return {};
  return ReadConfig(defaults, &ParseModelDefaults, &defaults_);
}

Status Checkpoint::CheckTogether() const {
  if (dit_config_.joint_attention_dim != text_encoder_config_.hidden_size) {
    return Error{
        ErrorCode::kInvalidArgument, kOperation,
        directory_ + "/transformer/config.json: joint_attention_dim",
        std::to_string(dit_config_.joint_attention_dim),
        "the text encoder's hidden_size, " + std::to_string(text_encoder_config_.hidden_size)};
  }
  const int64_t packed = dit_config_.patch_size * dit_config_.patch_size * vae_config_.z_dim;
  if (dit_config_.in_channels != packed) {
    return Error{ErrorCode::kInvalidArgument, kOperation,
                 directory_ + "/transformer/config.json: in_channels",
                 std::to_string(dit_config_.in_channels),
                 "patch_size^2 times the VAE's z_dim, " + std::to_string(packed)};
  }
  return {};
}

Status Checkpoint::OpenTables() {
  SEGUE_ASSIGN_OR_RETURN(transformer_, TensorTable::Open(directory_ + "/transformer",
                                                         "diffusion_pytorch_model", "transformer"));
  SEGUE_ASSIGN_OR_RETURN(text_encoder_,
                         TensorTable::Open(directory_ + "/text_encoder", "model", "text_encoder"));
  SEGUE_ASSIGN_OR_RETURN(vae_,
                         TensorTable::Open(directory_ + "/vae", "diffusion_pytorch_model", "vae"));
  // Longest first: "model." would match names of none of the others, but say what is meant.
  constexpr std::array<const char*, 3> kPrefixes = {"model.language_model.",
                                                    "language_model.model.", "model."};
  for (const char* prefix : kPrefixes) {
    if (text_prefix_.empty() && text_encoder_.Contains(std::string(prefix) + "norm.weight")) {
      text_prefix_ = prefix;
    }
  }
  if (text_prefix_.empty()) {
    return Error{ErrorCode::kNotFound, kOperation, "text_encoder: tensor \"norm.weight\"",
                 "nothing under any known prefix",
                 "model., model.language_model. or language_model.model."};
  }
  text_embedding_name_ = text_prefix_ + "embed_tokens.weight";
  if (text_encoder_.Contains(text_embedding_name_) || !text_encoder_config_.tie_word_embeddings) {
    return {};
  }
  for (const char* head : {"lm_head.weight", "language_model.lm_head.weight"}) {
    if (text_encoder_.Contains(head)) text_embedding_name_ = head;
  }
  return {};
}

}  // namespace segue::model
