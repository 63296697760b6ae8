#include "runtime/memory_check.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "comm/communicator.h"
#include "model/memory_plan.h"
#include "model/qwen_image.h"
#include "runtime/checkpoint_networks.h"

namespace segue::runtime {
namespace {

std::string Mebibytes(int64_t bytes) {
  return std::to_string((bytes + (int64_t{1} << 20) - 1) >> 20) + " MiB";
}

Status CheckFits(const char* operation, const std::string& what, int64_t needed,
                 const DeviceInfo& host) {
  if (host.free_bytes == 0 || needed <= host.free_bytes) return {};
  return Error{.code = ErrorCode::kOutOfMemory,
               .operation = operation,
               .argument = "memory",
               .got = Mebibytes(host.free_bytes) + " available",
               .wanted = Mebibytes(needed) + ": " + what};
}

}  // namespace

Result<int64_t> RandomWeightBytes(const model::Checkpoint& checkpoint) {
  const comm::SingleRank single;
  model::WeightStore store = model::WeightStore::Device(HostMemory(), {});  // only counts
  SEGUE_RETURN_IF_ERROR(model::QwenImage::Load(checkpoint, single, store));
  return store.bytes(model::WeightGroup::kResident) + store.bytes(model::WeightGroup::kModulation);
}

Status CheckModelMemory(const model::Checkpoint& checkpoint, const DeviceInfo& host) {
  const ModelDefaults& defaults = checkpoint.defaults();
  const model::ActivationPlan plan =
      model::PlanActivations(ConfigOf(checkpoint), 1,
                             {.grid_height = std::max(defaults.height / kPixelsPerToken, 1),
                              .grid_width = std::max(defaults.width / kPixelsPerToken, 1),
                              .sequences = defaults.guidance > 1.0 + kGuidanceTolerance ? 2 : 1,
                              .text_rows = model::kDefaultMaxSequenceLength,
                              .dropped = model::kTemplatePrefixIds});
  if (checkpoint.transformer().random()) {
    SEGUE_ASSIGN_OR_RETURN(const int64_t weights, RandomWeightBytes(checkpoint));
    return CheckFits("load model",
                     "random weights " + Mebibytes(weights) + " and " + Mebibytes(plan.peak()) +
                         " for a " + std::to_string(defaults.width) + "x" +
                         std::to_string(defaults.height) + " picture",
                     weights + plan.peak(), host);
  }
  // The plan `segue inspect` prints, so that what it says fits does load.
  SEGUE_ASSIGN_OR_RETURN(UnusedTensors unused, CheckNetworks(checkpoint));
  const int64_t transformer = UsedBytes(checkpoint.transformer(), unused["transformer"]);
  const int64_t text_encoder = UsedBytes(checkpoint.text_encoder(), unused["text_encoder"]);
  const int64_t vae = UsedBytes(checkpoint.vae(), unused["vae"]);
  return CheckFits("load model",
                   "weights of the transformer " + Mebibytes(transformer) + ", the text encoder " +
                       Mebibytes(text_encoder) + ", the decoder " + Mebibytes(vae) + ", and " +
                       Mebibytes(plan.peak()) + " for a " + std::to_string(defaults.width) + "x" +
                       std::to_string(defaults.height) + " picture",
                   transformer + text_encoder + vae + plan.peak(), host);
}

Status CheckRequestMemory(const model::ModelConfig& config, const RequestState& request,
                          Span<const RequestState* const> running, const DeviceInfo& host) {
  std::vector<int64_t> lengths;
  std::vector<int64_t> kept;
  int64_t text_rows = 0;
  for (const model::PromptIds& prompt : request.prompts) {
    lengths.push_back(static_cast<int64_t>(prompt.ids.size()));
    kept.push_back(prompt.rows);
    text_rows += prompt.rows;
  }
  const Settings& settings = request.settings;
  int64_t image_rows = settings.image_rows() * settings.sequences();
  for (const RequestState* other : running) {
    image_rows += other->settings.image_rows() * other->settings.sequences();
    for (const model::PromptIds& prompt : other->prompts) text_rows += prompt.rows;
  }
  const auto timesteps = static_cast<int64_t>(running.size()) + 1;
  const int64_t state = model::RequestBytes(config, 1, settings.image_rows(), kept);
  const int64_t encode = model::EncodeBytes(config, 1, lengths, model::kTemplatePrefixIds);
  const int64_t denoise = model::DenoiseBytes(config, 1, image_rows, text_rows, timesteps);
  const int64_t decode =
      model::DecodeBytes(config, 1, settings.grid_height(), settings.grid_width());
  return CheckFits("submit request",
                   "encoding " + Mebibytes(encode) + ", denoising " + Mebibytes(denoise) +
                       " or decoding " + Mebibytes(decode) + ", and its own state " +
                       Mebibytes(state) + ", at " + std::to_string(settings.width) + "x" +
                       std::to_string(settings.height),
                   state + std::max({encode, denoise, decode}), host);
}

}  // namespace segue::runtime
