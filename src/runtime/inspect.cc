#include <algorithm>
#include <filesystem>
#include <utility>

#include "device/device.h"
#include "device/gpu.h"
#include "model/memory_plan.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights/checkpoint.h"
#include "runtime/checkpoint_networks.h"
#include "runtime/gpu_memory_plan.h"
#include "runtime/gpu_resources.h"
#include "runtime/memory_check.h"
#include "runtime/settings.h"
#include "segue/checkpoint.h"

namespace segue {
namespace {

ComponentSummary Summarise(const std::string& name, const std::string& class_name,
                           const model::TensorTable& table, const std::set<std::string>& unused) {
  ComponentSummary summary;
  summary.name = name;
  summary.class_name = class_name;
  summary.parameters = table.total_parameters();
  summary.bytes = table.total_bytes();
  summary.unused_tensors = static_cast<int64_t>(unused.size());
  const auto relative = [&name](const model::TensorFile& file) {
    return name + "/" + std::filesystem::path(file.path()).filename().string();
  };
  for (const auto& file : table.files()) summary.files.push_back(relative(*file));
  for (const model::TensorTable::Item& item : table.items()) {
    TensorSummary tensor = {item.entry->name, item.entry->dtype_name, {}, relative(*item.file)};
    for (int axis = 0; axis < item.entry->shape.rank(); ++axis) {
      tensor.shape.push_back(item.entry->shape[axis]);
    }
    summary.tensors.push_back(std::move(tensor));
  }
  return summary;
}

// A component without weights: its files only.
ComponentSummary SummariseFiles(const std::filesystem::path& directory, const std::string& name,
                                const std::string& class_name) {
  ComponentSummary summary;
  summary.name = name;
  summary.class_name = class_name;
  const std::filesystem::path folder(name);
  std::error_code error;
  for (std::filesystem::directory_iterator file(directory / folder, error), end;
       !error && file != end; file.increment(error)) {
    summary.files.push_back((folder / file->path().filename()).string());
  }
  std::sort(summary.files.begin(), summary.files.end());
  return summary;
}

// What the GPU of this index has free; 0: unknown.
int64_t FreeOnGpu(int index) {
  const Result<GpuMemoryInfo> memory = FreeAndTotal(index);
  return memory.ok() ? memory->free_bytes : 0;
}

Status PlanOnGpu(const model::Checkpoint& checkpoint, const runtime::Settings& settings, int gpu,
                 MemoryPlan& plan) {
  SEGUE_ASSIGN_OR_RETURN(const runtime::GpuMemoryPlans plans,
                         runtime::PlanGpuMemory(checkpoint, settings, plan.text_rows));
  const runtime::GpuMemoryPlan& memory = plans.any_schedule;
  plan.weights = memory.weights + memory.modulation_weights;
  plan.modulation = memory.modulation;
  plan.libraries = memory.libraries;
  plan.choosing = memory.choosing;
  plan.text_encoder_activations = memory.text_encoder;
  plan.transformer_activations = memory.transformer;
  plan.vae_activations = memory.vae;
  plan.peak = memory.peak();
  plan.peak_one_schedule = plans.one_schedule.peak();
  plan.available = FreeOnGpu(gpu);
  return {};
}

Status PlanOnHost(const model::Checkpoint& checkpoint, const runtime::Settings& settings,
                  int64_t weights, MemoryPlan& plan) {
  const model::ActivationPlan activations =
      model::PlanActivations(runtime::ConfigOf(checkpoint), 1,
                             {.grid_height = settings.grid_height(),
                              .grid_width = settings.grid_width(),
                              .sequences = plan.sequences,
                              .text_rows = plan.text_rows,
                              .dropped = model::kTemplatePrefixIds});
  plan.weights = weights;
  plan.text_encoder_activations = activations.text_encoder;
  plan.transformer_activations = activations.transformer;
  plan.vae_activations = activations.vae;
  plan.peak = weights + activations.peak();
  plan.available = HostInfo().free_bytes;
  return {};
}

// `gpu`: its index, or -1 for the host, where the weights take `weights` bytes.
Result<MemoryPlan> PlanSize(const model::Checkpoint& checkpoint, PictureSize size, int gpu,
                            int64_t weights) {
  // The checks a request of this size would pass through, with the same errors.
  Request request;
  if (size.width != 0 || size.height != 0) {
    request.width = size.width;
    request.height = size.height;
  }
  SEGUE_ASSIGN_OR_RETURN(const runtime::Settings settings,
                         runtime::ResolveSettings(request, checkpoint.defaults(),
                                                  checkpoint.dit_config().in_channels));
  MemoryPlan plan;
  plan.width = settings.width;
  plan.height = settings.height;
  plan.sequences = settings.sequences();
  plan.text_rows = model::kDefaultMaxSequenceLength;
  SEGUE_RETURN_IF_ERROR(gpu < 0 ? PlanOnHost(checkpoint, settings, weights, plan)
                                : PlanOnGpu(checkpoint, settings, gpu, plan));
  // An unknown amount does not speak against it.
  plan.fits = plan.available == 0 || plan.peak <= plan.available;
  return plan;
}

}  // namespace

Result<CheckpointSummary> InspectCheckpoint(const std::string& directory,
                                            const std::vector<PictureSize>& sizes,
                                            const std::string& device, bool random_weights) {
  SEGUE_ASSIGN_OR_RETURN(const int gpu, runtime::ParseDevice(device));
  SEGUE_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint,
                         random_weights ? model::Checkpoint::OpenRandom(directory, 0)
                                        : model::Checkpoint::Open(directory));
  runtime::UnusedTensors unused;
  if (!random_weights) {
    SEGUE_ASSIGN_OR_RETURN(unused, runtime::CheckNetworks(checkpoint));
  }
  CheckpointSummary summary;
  summary.directory = directory;
  const model::PipelineClasses& classes = checkpoint.classes();
  summary.components = {Summarise("transformer", classes.transformer, checkpoint.transformer(),
                                  unused["transformer"]),
                        Summarise("text_encoder", classes.text_encoder, checkpoint.text_encoder(),
                                  unused["text_encoder"]),
                        Summarise("vae", classes.vae, checkpoint.vae(), unused["vae"]),
                        SummariseFiles(directory, "tokenizer", classes.tokenizer),
                        SummariseFiles(directory, "scheduler", classes.scheduler)};
  int64_t weights = runtime::UsedBytes(checkpoint.transformer(), unused["transformer"]) +
                    runtime::UsedBytes(checkpoint.text_encoder(), unused["text_encoder"]) +
                    runtime::UsedBytes(checkpoint.vae(), unused["vae"]);
  if (random_weights) {
    SEGUE_ASSIGN_OR_RETURN(weights, runtime::RandomWeightBytes(checkpoint));
  }
  std::vector<PictureSize> planned = sizes;
  if (planned.empty()) planned.push_back({});
  for (const PictureSize& size : planned) {
    // {0, 0} stands for the default only when no size was asked for.
    if (!sizes.empty() && size.width == 0 && size.height == 0) {
      return Error{ErrorCode::kInvalidArgument, "inspect checkpoint", "size", "0x0",
                   "positive multiples of 16"};
    }
    SEGUE_ASSIGN_OR_RETURN(MemoryPlan plan, PlanSize(checkpoint, size, gpu, weights));
    summary.plans.push_back(plan);
  }
  return summary;
}

}  // namespace segue
