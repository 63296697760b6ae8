#include "cli/report.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/console.h"
#include "cli/version.h"

namespace segue::cli {
namespace {

using Json = nlohmann::ordered_json;

// The shortest decimal that reads back as the same number.
std::string FormatNumber(double value) { return Json(value).dump(); }

Json KernelsAsJson(const std::vector<KernelUse>& kernels) {
  Json list = Json::array();
  for (const KernelUse& use : kernels) {
    list.push_back({{"op", use.op},
                    {"kernel", use.kernel},
                    {"calls", use.calls},
                    {"passed_over", use.passed_over}});
  }
  return list;
}

Json QualityAsJson(const QualityReport& quality) {
  Json refused = Json::array();
  for (const RefusedGate& gate : quality.refused) {
    refused.push_back({{"gate", gate.name}, {"reason", gate.reason}});
  }
  return {{"tier", QualityName(quality.tier)},
          {"gates", quality.mounted},
          {"refused", std::move(refused)}};
}

// "high (a, b)"
std::string QualityAsText(const QualityReport& quality) {
  std::string gates;
  for (const std::string& name : quality.mounted) gates += (gates.empty() ? "" : ", ") + name;
  return QualityName(quality.tier) + (gates.empty() ? " (no gates)" : " (" + gates + ")");
}

Json PictureAsJson(const RunFacts& facts, const Written& written) {
  const Picture& picture = written.picture;
  Json json = {{"path", written.path},         {"width", written.width},
               {"height", written.height},     {"steps", picture.steps},
               {"guidance", picture.guidance}, {"guided", picture.guided},
               {"seed", picture.seed},         {"prompt_tokens", picture.prompt_tokens}};
  if (picture.guided) {
    json["negative_prompt"] = picture.negative_prompt;
    json["negative_prompt_given"] = facts.negative_prompt_given;
    json["negative_prompt_tokens"] = picture.negative_prompt_tokens;
  }
  if (!facts.latents_file.empty()) json["latents"] = facts.latents_file;
  if (!written.stages_path.empty()) json["stages"] = written.stages_path;
  json["seconds"] = {{"encode", picture.times.encode_s},
                     {"denoise", picture.times.denoise_s},
                     {"decode", picture.times.decode_s}};
  json["device"] = picture.device;
  json["quality"] = QualityAsJson(picture.quality);
  json["attention"] = picture.attention_backend;
  json["graph"] = {{"replayed", picture.graph.replayed},
                   {"recorded", picture.graph.recorded},
                   {"eager", picture.graph.eager},
                   {"reason", picture.graph.reason}};
  json["warnings"] = picture.warnings;
  json["kernels"] = KernelsAsJson(picture.kernels);
  return json;
}

}  // namespace

TextChunks SettingsAsText(const RunFacts& facts, const Picture& picture) {
  // The directory's own name only: where it lies is nobody's business.
  const std::filesystem::path model = std::filesystem::path(facts.model).lexically_normal();
  const std::string name =
      (model.has_filename() ? model.filename() : model.parent_path().filename()).string();
  TextChunks text = {{"Software", std::string("Segue ") + VersionNumber()},
                     {"prompt", facts.prompt}};
  if (picture.guided) text.emplace_back("negative_prompt", picture.negative_prompt);
  text.emplace_back("model", OneLine(name));
  text.emplace_back(
      "size", std::to_string(picture.image.width) + "x" + std::to_string(picture.image.height));
  text.emplace_back("steps", std::to_string(picture.steps));
  text.emplace_back("guidance", FormatNumber(picture.guidance));
  if (facts.latents_file.empty()) {
    text.emplace_back("seed", std::to_string(picture.seed));
  } else {
    text.emplace_back("latents",
                      OneLine(std::filesystem::path(facts.latents_file).filename().string()));
  }
  // Sums over another number of ranks have other bytes.
  if (facts.tensor_parallel > 1) {
    text.emplace_back("tensor_parallel", std::to_string(facts.tensor_parallel));
  }
  if (facts.bf16) text.emplace_back("rounding", "bf16");
  if (picture.quality.tier != Quality::kLossless) {
    text.emplace_back("quality", QualityAsText(picture.quality));
  }
  if (facts.reference) text.emplace_back("kernels", "reference");
  return text;
}

std::string RunAsJson(const RunFacts& facts, const std::vector<Written>& pictures) {
  Json json = {{"segue", VersionNumber()},
               {"commit", VersionCommit()},
               {"model", facts.model},
               {"prompt", facts.prompt},
               {"threads", facts.threads},
               {"tensor_parallel", facts.tensor_parallel},
               {"cfg_parallel", facts.cfg_parallel},
               {"bf16_rounding", facts.bf16},
               {"reference_kernels", facts.reference},
               {"load_seconds", facts.load_s}};
  if (facts.memory.allocated > 0) {
    json["memory"] = {{"planned", facts.memory.planned},
                      {"allocated", facts.memory.allocated},
                      {"peak", facts.memory.peak},
                      {"device", facts.memory.device}};
  }
  Json list = Json::array();
  for (const Written& written : pictures) list.push_back(PictureAsJson(facts, written));
  json["pictures"] = std::move(list);
  // A file name need not be UTF-8; JSON must.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace segue::cli
