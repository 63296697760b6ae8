#include "cli/inspect.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/parse.h"
#include "cli/table.h"
#include "segue/checkpoint.h"

namespace segue::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kName[] = "inspect";
constexpr char kExamples[] = R"(Examples:
  segue inspect models/emoji
  segue inspect Qwen-Image --size 1328x1328 --size 1664x928
  segue inspect models/emoji --tensors --json

Reads headers and configurations only; weights are not touched.)";

struct InspectOptions {
  std::string model;
  std::vector<std::string> sizes;
  std::string device = "cpu";
  bool random_weights = false;
  bool tensors = false;
  bool json = false;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

// "BF16 x 1933, F32 x 2": how many tensors have which dtype.
std::string DtypesText(const ComponentSummary& component) {
  std::map<std::string, int> counts;
  for (const TensorSummary& tensor : component.tensors) ++counts[tensor.dtype];
  std::string text;
  for (const auto& [dtype, count] : counts) {
    text += (text.empty() ? "" : ", ") + dtype + " x " + std::to_string(count);
  }
  return text;
}

std::string ComponentsText(const CheckpointSummary& summary, bool tensors) {
  Table table({2, 3, 4});
  table.Add({"component", "class", "parameters", "bytes", "files", "tensors"});
  int64_t parameters = 0;
  int64_t bytes = 0;
  for (const ComponentSummary& component : summary.components) {
    std::string held = DtypesText(component);
    if (component.unused_tensors > 0)
      held += Format(" (%lld not used)", static_cast<long long>(component.unused_tensors));
    table.Add({OneLine(component.name), OneLine(component.class_name),
               std::to_string(component.parameters), FormatBytes(component.bytes),
               std::to_string(component.files.size()), OneLine(held)});
    parameters += component.parameters;
    bytes += component.bytes;
  }
  table.Add({"total", "", std::to_string(parameters), FormatBytes(bytes)});
  std::string text = table.Text();
  if (!tensors) return text;
  Table list;
  for (const ComponentSummary& component : summary.components) {
    for (const TensorSummary& tensor : component.tensors) {
      list.Add({OneLine(tensor.file), OneLine(tensor.name), OneLine(tensor.dtype),
                ShapeText(tensor.shape)});
    }
  }
  return text + "\n" + list.Text();
}

std::string PlansText(const std::vector<MemoryPlan>& plans) {
  Table table({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  table.Add({"size", "sequences", "text rows", "weights", "modulation", "libraries", "choosing",
             "encoder", "transformer", "vae", "peak", "one schedule", "available", "fits"});
  for (const MemoryPlan& plan : plans) {
    table.Add({Format("%dx%d", plan.width, plan.height), std::to_string(plan.sequences),
               std::to_string(plan.text_rows), FormatBytes(plan.weights),
               FormatBytes(plan.modulation), FormatBytes(plan.libraries),
               FormatBytes(plan.choosing), FormatBytes(plan.text_encoder_activations),
               FormatBytes(plan.transformer_activations), FormatBytes(plan.vae_activations),
               FormatBytes(plan.peak), FormatBytes(plan.peak_one_schedule),
               FormatBytes(plan.available), plan.fits ? "yes" : "no"});
  }
  return table.Text();
}

Json ComponentAsJson(const ComponentSummary& component, bool tensors) {
  Json json = {{"name", component.name},
               {"class", component.class_name},
               {"parameters", component.parameters},
               {"bytes", component.bytes},
               {"tensor_count", component.tensors.size()},
               {"unused_tensors", component.unused_tensors},
               {"files", component.files}};
  if (!tensors) return json;
  json["tensors"] = Json::array();
  for (const TensorSummary& tensor : component.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"file", tensor.file}});
  }
  return json;
}

Json PlanAsJson(const MemoryPlan& plan) {
  return {{"width", plan.width},
          {"height", plan.height},
          {"sequences", plan.sequences},
          {"text_rows", plan.text_rows},
          {"weights", plan.weights},
          {"modulation", plan.modulation},
          {"libraries", plan.libraries},
          {"choosing", plan.choosing},
          {"text_encoder_activations", plan.text_encoder_activations},
          {"transformer_activations", plan.transformer_activations},
          {"vae_activations", plan.vae_activations},
          {"peak", plan.peak},
          {"peak_one_schedule", plan.peak_one_schedule},
          {"available", plan.available},
          {"fits", plan.fits}};
}

std::string AsJson(const CheckpointSummary& summary, bool tensors) {
  Json json = {{"directory", summary.directory}};
  json["components"] = Json::array();
  for (const ComponentSummary& component : summary.components) {
    json["components"].push_back(ComponentAsJson(component, tensors));
  }
  json["memory"] = Json::array();
  for (const MemoryPlan& plan : summary.plans) json["memory"].push_back(PlanAsJson(plan));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status Inspect(const InspectOptions& options) {
  std::vector<PictureSize> sizes;
  for (const std::string& text : options.sizes) {
    SEGUE_ASSIGN_OR_RETURN(const PictureSize size, ParseSize("--size", text));
    sizes.push_back(size);
  }
  SEGUE_ASSIGN_OR_RETURN(
      const CheckpointSummary summary,
      InspectCheckpoint(options.model, sizes, options.device, options.random_weights));
  if (options.json) return Print(AsJson(summary, options.tensors));
  return Print(ComponentsText(summary, options.tensors) + "\n" + PlansText(summary.plans));
}

}  // namespace

Command RegisterInspect(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      kName, "Show a checkpoint's components, tensors and the memory a picture needs");
  const auto options = std::make_shared<InspectOptions>();
  app->footer(kExamples);
  app->add_option("MODEL", options->model, "Checkpoint directory")->type_name("")->required();
  app->add_option("--size", options->sizes,
                  "Plan the memory for this size; may be repeated [the model's default]")
      ->type_name("WxH")
      ->allow_extra_args(false);
  app->add_option("--device", options->device,
                  "Plan for cpu, cuda or cuda:N, which need not be there [cpu]")
      ->type_name("NAME");
  app->add_flag("--random-weights", options->random_weights,
                "Plan for weights out of a seed; MODEL needs configurations only");
  app->add_flag("--tensors", options->tensors, "List every tensor");
  app->add_flag("--json", options->json, "Print JSON");
  return {.app = app, .run = [options] {
            const Status status = Inspect(*options);
            return status.ok() ? kExitOk : Fail(kName, status.error());
          }};
}

}  // namespace segue::cli
