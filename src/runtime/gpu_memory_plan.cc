#include "runtime/gpu_memory_plan.h"

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "model/memory_plan.h"
#include "model/qwen_image.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/gpu_pipeline.h"
#include "runtime/gpu_resources.h"
#include "runtime/recorded_step.h"
#include "runtime/text_slot.h"

namespace segue::runtime {
namespace {

// What is planned for where no GPU is at hand.
constexpr attention::Gpu kH200 = {.compute_capability = 90, .multiprocessors = 132};

}  // namespace

int64_t GpuMemoryPlan::peak() const {
  return weights + modulation + libraries + request + std::max({text_encoder, transformer, vae});
}

Result<GpuMemoryPlan> PlanGpuMemory(const model::Checkpoint& checkpoint, const Settings& settings,
                                    int64_t text_rows) {
  model::Placement placement;
  placement.device = DeviceKind::kCuda;
  const Result<attention::Gpu> gpu = attention::CurrentGpu();
  placement.gpu = gpu.ok() ? *gpu : kH200;

  // Only counts: the networks built over it are never run.
  const comm::SingleRank single;
  model::WeightStore store = model::WeightStore::Device(HostMemory(), {});
  SEGUE_ASSIGN_OR_RETURN(const auto model, model::QwenImage::Load(checkpoint, single, store));
  const model::ModelConfig& config = model->config();

  StepShape shape;
  for (int i = 0; i < settings.sequences(); ++i) {
    shape.sequences.push_back({.grid_height = settings.grid_height(),
                               .grid_width = settings.grid_width(),
                               .text_slot = TextSlot(text_rows)});
  }
  SEGUE_ASSIGN_OR_RETURN(const RecordedStep step,
                         RecordedStep::Create(model->dit(), placement, shape, ""));
  const auto sequences = static_cast<size_t>(settings.sequences());
  const std::vector<int64_t> kept(sequences, text_rows);
  const std::vector<int64_t> lengths(sequences, text_rows + model::kTemplatePrefixIds);
  return GpuMemoryPlan{
      .weights =
          store.bytes(model::WeightGroup::kResident) + store.bytes(model::WeightGroup::kModulation),
      .modulation =
          ModulationCache::Bytes(config.dit, placement, GpuPipelineOptions().modulation_rows),
      .libraries = kProductWorkspaceBytes + kernels::ConvolutionLibrary::kWorkspaceBytes +
                   model->vae().ReorderedBytes(),
      .request = model::RequestBytes(config, placement, settings.image_rows(), kept),
      .text_encoder = model::EncodeBytes(config, placement, lengths, model::kTemplatePrefixIds),
      .transformer = step.bytes(),
      .vae = model::DecodeBytes(config, placement, settings.grid_height(), settings.grid_width())};
}

}  // namespace segue::runtime
