#include "runtime/checkpoint_networks.h"

#include <initializer_list>
#include <vector>

#include "comm/communicator.h"
#include "model/dit/dit.h"
#include "model/text_encoder/text_encoder.h"
#include "model/vae/decoder.h"
#include "model/weights/tensor_table.h"

namespace segue::runtime {
namespace {

std::set<std::string> UnusedOf(const model::WeightReader& reader) {
  const std::vector<std::string> names = reader.Unused();
  return {names.begin(), names.end()};
}

}  // namespace

model::ModelConfig ConfigOf(const model::Checkpoint& checkpoint) {
  return {.dit = checkpoint.dit_config(),
          .text_encoder = checkpoint.text_encoder_config(),
          .vae = checkpoint.vae_config()};
}

Result<UnusedTensors> CheckNetworks(const model::Checkpoint& checkpoint) {
  const model::ModelConfig config = ConfigOf(checkpoint);
  const comm::SingleRank communicator;
  UnusedTensors unused;
  // Only counts: nothing is read, copied or made.
  model::WeightStore store = model::WeightStore::Device(HostMemory(), {});
  model::WeightReader text(checkpoint.text_encoder(), store);
  const model::TextEncoder text_encoder(
      config.text_encoder, text, {checkpoint.text_prefix(), checkpoint.text_embedding_name()},
      communicator);
  SEGUE_RETURN_IF_ERROR(text.Finish());
  unused["text_encoder"] = UnusedOf(text);
  model::WeightReader transformer(checkpoint.transformer(), store);
  const model::Dit dit(config.dit, transformer, communicator);
  SEGUE_RETURN_IF_ERROR(transformer.Finish());
  unused["transformer"] = UnusedOf(transformer);
  model::WeightReader vae(checkpoint.vae(), store);
  const model::VaeDecoder decoder(config.vae, vae);
  SEGUE_RETURN_IF_ERROR(vae.Finish());
  unused["vae"] = UnusedOf(vae);
  return unused;
}

int64_t UsedBytes(const model::TensorTable& table, const std::set<std::string>& unused) {
  int64_t bytes = table.total_bytes();
  for (const std::string& name : unused) bytes -= table.Find(name)->bytes;
  return bytes;
}

bool IsKnownUnused(const std::string& component, const std::string& tensor) {
  const auto begins_with = [&tensor](std::initializer_list<const char*> prefixes) {
    for (const char* prefix : prefixes) {
      if (tensor.starts_with(prefix)) return true;
    }
    return false;
  };
  if (component == "text_encoder") {
    return begins_with({"visual.", "model.visual.", "lm_head.", "language_model.lm_head."}) ||
           tensor.ends_with("rotary_emb.inv_freq");
  }
  if (component == "vae") {
    return begins_with({"encoder.", "quant_conv."}) ||
           tensor.find(".upsamplers.0.time_conv.") != std::string::npos;
  }
  return false;
}

}  // namespace segue::runtime
