// A GPU with what an engine runs on it: resources, weights and the pipeline over them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "device/thread_pool.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"
#include "runtime/gpu_memory_plan.h"
#include "runtime/gpu_pipeline.h"
#include "runtime/gpu_resources.h"
#include "runtime/named_schedules.h"

namespace segue::runtime {

// Members point to earlier ones.
struct GpuRank {
  std::unique_ptr<GpuResources> resources;
  std::string name;  // of the GPU
  std::optional<model::WeightStore> store;
  std::unique_ptr<const model::QwenImage> model;
  GpuPlanSettings plan;
  std::unique_ptr<Pipeline> pipeline;
};

struct GpuRankSettings {
  const model::Checkpoint* checkpoint = nullptr;
  const comm::Communicator* communicator = nullptr;  // of the transformer's ranks
  model::Networks networks = model::Networks::kAll;
  int device = 0;
  const NamedSchedules* schedules = nullptr;
  const EngineOptions* options = nullptr;
  // The log, whether references run, the attention back end; the rest is the GPU's.
  model::ForwardContext context;
  EngineMemory memory;
  ThreadPool* host_pool = nullptr;
};

// Makes the device current. Errors: those of GpuResources::Create, LoadGpuModel and
// GpuPipeline::Create; no attention back end. Precondition: what the settings point to, but for the
// schedules and the options, outlives the rank.
Result<GpuRank> LoadGpuRank(const GpuRankSettings& settings);

}  // namespace segue::runtime
