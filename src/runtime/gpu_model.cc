#include "runtime/gpu_model.h"

#include <utility>

namespace segue::runtime {
namespace {

using model::QwenImage;
using model::WeightGroup;
using model::WeightStore;

model::WeightTarget TargetOf(GpuResources& gpu) {
  return {.device = gpu.device(), .staging = &gpu.pinned()};
}

// Both passes of a store, and the elements.
Result<std::unique_ptr<QwenImage>> Fill(const GpuModelSource& source, WeightStore& store,
                                        const std::function<bool(int64_t, int64_t)>& progress) {
  SEGUE_RETURN_IF_ERROR(
      QwenImage::Load(*source.checkpoint, *source.communicator, store, source.networks));
  SEGUE_RETURN_IF_ERROR(store.Allocate());
  SEGUE_ASSIGN_OR_RETURN(auto model, QwenImage::Load(*source.checkpoint, *source.communicator,
                                                     store, source.networks));
  SEGUE_RETURN_IF_ERROR(store.Load({.progress = progress}));
  return model;
}

// One of two loads that are one to the caller, who is told bytes of the device's.
std::function<bool(int64_t, int64_t)> PartOfProgress(const GpuModelSource& source, int64_t before,
                                                     int64_t bytes, int64_t all) {
  if (source.progress == nullptr) return nullptr;
  return [progress = source.progress, before, bytes, all](int64_t done, int64_t total) {
    const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    return progress(before + static_cast<int64_t>(share * static_cast<double>(bytes)), all);
  };
}

// The weights are there no longer than it takes.
Result<ModulationCache> Tabulate(const GpuModelSource& source, GpuResources& gpu,
                                 const model::ForwardContext& context, const GpuModel& loaded) {
  WeightStore store =
      WeightStore::DeviceGroup(gpu.memory(), TargetOf(gpu), WeightGroup::kModulation);
  const int64_t bytes = loaded.modulation_bytes;
  SEGUE_ASSIGN_OR_RETURN(
      const auto model,
      Fill(source, store, PartOfProgress(source, 0, bytes, bytes + loaded.resident_bytes)));
  SEGUE_ASSIGN_OR_RETURN(
      ModulationCache cache,
      ModulationCache::Create(model->dit(), gpu.placement(),
                              static_cast<int64_t>(source.timesteps.size()), gpu.memory()));
  const auto tabulated = cache.Rows(source.timesteps, context);
  // Even behind a failure: what was enqueued reads the weights.
  SEGUE_RETURN_IF_ERROR(gpu.stream().Synchronize());
  SEGUE_RETURN_IF_ERROR(tabulated);
  cache.Seal();
  return cache;
}

}  // namespace

Result<GpuModel> LoadGpuModel(const GpuModelSource& source, GpuResources& gpu,
                              const model::ForwardContext& context) {
  GpuModel loaded{.store = WeightStore::Device(gpu.memory(), TargetOf(gpu))};
  {
    WeightStore counting = WeightStore::Device(gpu.memory(), TargetOf(gpu));
    SEGUE_RETURN_IF_ERROR(
        QwenImage::Load(*source.checkpoint, *source.communicator, counting, source.networks));
    loaded.resident_bytes = counting.bytes(WeightGroup::kResident);
    loaded.modulation_bytes = counting.bytes(WeightGroup::kModulation);
  }
  auto progress = source.progress;
  if (!source.timesteps.empty()) {
    SEGUE_ASSIGN_OR_RETURN(loaded.modulation, Tabulate(source, gpu, context, loaded));
    loaded.store = WeightStore::DeviceGroup(gpu.memory(), TargetOf(gpu), WeightGroup::kResident);
    progress = PartOfProgress(source, loaded.modulation_bytes, loaded.resident_bytes,
                              loaded.modulation_bytes + loaded.resident_bytes);
  }
  SEGUE_ASSIGN_OR_RETURN(auto model, Fill(source, loaded.store, progress));
  SEGUE_RETURN_IF_ERROR(model->ReorderWeights(gpu.memory(), context.kernels));
  loaded.model = std::move(model);
  return loaded;
}

}  // namespace segue::runtime
