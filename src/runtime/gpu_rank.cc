#include "runtime/gpu_rank.h"

#include <array>
#include <utility>

#include "runtime/gpu_model.h"
#include "runtime/recorded_step.h"

namespace segue::runtime {
namespace {

// Whether the product on a block's packed q, k and v, as far as a rank has them, has the bytes of
// three.
Result<bool> PackedProductsAreEqual(const model::DitConfig& config, GpuResources& gpu) {
  const int64_t hidden = config.hidden();
  const int64_t local = hidden / gpu.placement().ranks;
  const std::array<int64_t, 3> parts = {local, local, local};
  return gpu.products().PackedEqualsParts({.n = 3 * local, .k = hidden, .bias = true}, parts,
                                          gpu.stream().stream());
}

}  // namespace

Result<GpuRank> LoadGpuRank(const GpuRankSettings& settings) {
  const EngineOptions& options = *settings.options;
  const model::DitConfig& dit = settings.checkpoint->dit_config();
  GpuRank rank;
  SEGUE_ASSIGN_OR_RETURN(
      rank.resources,
      GpuResources::Create(settings.device, options.cache_directory, settings.memory));
  GpuResources& gpu = *rank.resources;
  gpu.SetRanks(settings.communicator->size());
  SEGUE_RETURN_IF_ERROR(CheckGpuAttention(dit, gpu.placement(), options.attention_backend));
  model::ForwardContext context = settings.context;
  context.kernels.stream = gpu.stream().stream();
  context.kernels.products = &gpu.products();
  context.kernels.convolutions = gpu.convolutions();
  context.rounding = kernels::Rounding::kBF16;
  context.communicator = settings.communicator;
  SEGUE_ASSIGN_OR_RETURN(GpuModel loaded,
                         LoadGpuModel({.checkpoint = settings.checkpoint,
                                       .communicator = settings.communicator,
                                       .networks = settings.networks,
                                       .timesteps = settings.schedules->timesteps(),
                                       .progress = options.load_progress},
                                      gpu, context));
  rank.store = std::move(loaded.store);
  rank.model = std::move(loaded.model);
  rank.plan = {.placement = gpu.placement(),
               .weights = loaded.resident_bytes,
               .modulation_weights = loaded.modulation_bytes,
               .attention_backend = options.attention_backend,
               .named_steps = static_cast<int64_t>(settings.schedules->timesteps().size())};
  SEGUE_ASSIGN_OR_RETURN(context.packed_products, PackedProductsAreEqual(dit, gpu));
  SEGUE_ASSIGN_OR_RETURN(
      rank.pipeline, GpuPipeline::Create(*rank.model, context, gpu, *settings.host_pool,
                                         {.graphs = options.graphs && !options.reference_kernels},
                                         std::move(loaded.modulation)));
  SEGUE_ASSIGN_OR_RETURN(rank.name, GpuName(settings.device));
  return rank;
}

}  // namespace segue::runtime
