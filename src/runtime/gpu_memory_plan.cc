#include "runtime/gpu_memory_plan.h"

#include <algorithm>
#include <numeric>

#include "comm/communicator.h"
#include "kernels/product_scratch.h"
#include "model/memory_plan.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/gpu_pipeline.h"
#include "runtime/gpu_resources.h"
#include "runtime/modulation_cache.h"
#include "runtime/recorded_step.h"
#include "runtime/text_slot.h"

namespace segue::runtime {
namespace {

// What is planned for where no GPU is at hand.
constexpr attention::Gpu kH200 = {.compute_capability = 90, .multiprocessors = 132};

// The most that is asked for at once of what GpuPipeline chooses for.
class Choosing {
 public:
  void Add(const model::ProductShapes& shapes) {
    const auto buckets = kernels::ProductBuckets(shapes, kProductWorkspaceBytes);
    bytes_ = std::max(bytes_, kernels::ProductScratchBytes(buckets));
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

StepShape ShapeOfAll(Span<const PlannedRequest> requests) {
  StepShape shape;
  for (const PlannedRequest& request : requests) {
    for (const int64_t rows : request.text_rows) {
      shape.sequences.push_back({.grid_height = request.grid_height,
                                 .grid_width = request.grid_width,
                                 .text_slot = TextSlot(rows)});
    }
  }
  return shape;
}

// What is there before any request, in the order of GpuMemoryPlan.
GpuMemoryPlan PlanResident(const model::QwenImage& model, const GpuPlanSettings& settings) {
  const bool named = settings.named_steps > 0;
  const int64_t rows = named ? settings.named_steps : GpuPipelineOptions().modulation_rows;
  GpuMemoryPlan plan;
  plan.weights = settings.weights;
  plan.modulation_weights = named ? 0 : settings.modulation_weights;
  plan.modulation = ModulationCache::Bytes(model.config().dit, settings.placement, rows);
  plan.libraries = kProductWorkspaceBytes + kernels::ConvolutionLibrary::kWorkspaceBytes +
                   model.vae().ReorderedBytes();
  if (named) {
    plan.tabulating = settings.modulation_weights + plan.modulation + kProductWorkspaceBytes +
                      kernels::ConvolutionLibrary::kWorkspaceBytes;
  }
  return plan;
}

void AddStages(const model::QwenImage& model, const GpuPlanSettings& settings,
               const PlannedRequest& request, GpuMemoryPlan& plan, Choosing& choosing) {
  const model::ModelConfig& config = model.config();
  const int64_t image_rows = request.grid_height * request.grid_width;
  plan.requests += model::RequestBytes(config, settings.placement, image_rows, request.text_rows);
  std::vector<int64_t> lengths = request.text_rows;
  for (int64_t& length : lengths) length += model::kTemplatePrefixIds;
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  plan.text_encoder =
      std::max(plan.text_encoder,
               model::EncodeBytes(config, settings.placement, lengths, model::kTemplatePrefixIds));
  plan.vae = std::max(plan.vae, model::DecodeBytes(config, settings.placement, request.grid_height,
                                                   request.grid_width));
  choosing.Add(model.text_encoder().Products(rows));
  for (const int64_t kept : request.text_rows) choosing.Add(model.dit().TextProducts(kept));
  choosing.Add(model.vae().Products(2 * request.grid_height, 2 * request.grid_width));
}

}  // namespace

PlannedRequest PlannedRequest::Of(const RequestState& state) {
  PlannedRequest request = {.grid_height = state.settings.grid_height(),
                            .grid_width = state.settings.grid_width()};
  request.text_rows.reserve(state.prompts.size());
  for (const model::PromptIds& prompt : state.prompts) request.text_rows.push_back(prompt.rows);
  return request;
}

int64_t GpuMemoryPlan::peak() const {
  const int64_t workspace = std::max({text_encoder, transformer, vae, choosing});
  return std::max(weights + modulation_weights + modulation + libraries + requests + workspace,
                  tabulating);
}

Result<GpuMemoryPlan> PlanGpuMemory(const model::QwenImage& model, const GpuPlanSettings& settings,
                                    Span<const PlannedRequest> requests) {
  GpuMemoryPlan plan = PlanResident(model, settings);
  plan.requests = Pipeline::kFlagBytes;
  Choosing choosing;
  if (settings.named_steps == 0) {
    for (const int64_t timesteps : GpuPipeline::kWarmTimesteps) {
      choosing.Add(model.dit().ModulationProducts(timesteps));
    }
  }
  for (const PlannedRequest& request : requests) {
    AddStages(model, settings, request, plan, choosing);
  }
  SEGUE_ASSIGN_OR_RETURN(const RecordedStep step,
                         RecordedStep::Create(model.dit(), settings.placement, ShapeOfAll(requests),
                                              settings.attention_backend));
  plan.transformer = step.bytes();
  // Packed or not follows from the library's bytes; the larger one.
  for (const bool packed : {true, false}) {
    choosing.Add(model.dit().Products(step.batch().image_rows(), step.batch().text_rows(), packed));
  }
  plan.choosing = choosing.bytes();
  return plan;
}

Result<GpuMemoryPlans> PlanGpuMemory(const model::Checkpoint& checkpoint, const Settings& settings,
                                     int64_t text_rows) {
  // Only counts: the networks built over it are never run.
  const comm::SingleRank single;
  model::WeightStore store = model::WeightStore::Device(HostMemory(), {});
  SEGUE_ASSIGN_OR_RETURN(const auto model, model::QwenImage::Load(checkpoint, single, store));
  GpuPlanSettings plan = {.weights = store.bytes(model::WeightGroup::kResident),
                          .modulation_weights = store.bytes(model::WeightGroup::kModulation)};
  plan.placement.device = DeviceKind::kCuda;
  const Result<attention::Gpu> gpu = attention::CurrentGpu();
  plan.placement.gpu = gpu.ok() ? *gpu : kH200;
  const PlannedRequest request = {
      .grid_height = settings.grid_height(),
      .grid_width = settings.grid_width(),
      .text_rows = std::vector<int64_t>(static_cast<size_t>(settings.sequences()), text_rows)};
  GpuMemoryPlans plans;
  SEGUE_ASSIGN_OR_RETURN(plans.any_schedule, PlanGpuMemory(*model, plan, {&request, 1}));
  plan.named_steps = settings.steps;
  SEGUE_ASSIGN_OR_RETURN(plans.one_schedule, PlanGpuMemory(*model, plan, {&request, 1}));
  return plans;
}

}  // namespace segue::runtime
