// A model on a GPU: its weights, brought there, and what was made of them on the way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/span.h"
#include "comm/communicator.h"
#include "model/layers/forward_context.h"
#include "model/qwen_image.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"
#include "runtime/gpu_resources.h"
#include "runtime/modulation_cache.h"
#include "segue/status.h"

namespace segue::runtime {

// Members point to earlier ones.
struct GpuModel {
  model::WeightStore store;
  std::unique_ptr<const model::QwenImage> model;
  // Of named timesteps, sealed; absent: the weights for any are there.
  std::optional<ModulationCache> modulation;
  // Bytes of each group, whether it is there or not.
  int64_t resident_bytes = 0;
  int64_t modulation_bytes = 0;
};

struct GpuModelSource {
  const model::Checkpoint* checkpoint = nullptr;
  const comm::Communicator* communicator = nullptr;
  model::Networks networks = model::Networks::kAll;
  // Those whose modulation is tabulated, each once; none: the weights for any are kept.
  Span<const float> timesteps;
  // As EngineOptions::load_progress; may be empty.
  std::function<bool(int64_t, int64_t)> progress;
};

// `context`: of the pipeline that will run the model. Errors: weights that are missing or of
// another shape, memory, files.
Result<GpuModel> LoadGpuModel(const GpuModelSource& source, GpuResources& gpu,
                              const model::ForwardContext& context);

}  // namespace segue::runtime
