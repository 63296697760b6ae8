// Where an engine's memory comes from. Tests put memory here that runs out when they say so.
#pragma once

#include <memory>

#include "device/device.h"
#include "segue/engine.h"
#include "segue/status.h"

namespace segue {

// Each outlives the engine.
struct EngineMemory {
  DeviceMemory* host = nullptr;       // null: HostMemory()
  DeviceMemory* device = nullptr;     // the GPU's; null: CudaMemory
  DeviceMemory* workspace = nullptr;  // the GPU's for the workspace; null: GrowingMemory
  DeviceMemory* pinned = nullptr;     // page-locked; null: PinnedMemory
};

class EngineLoader {
 public:
  // Engine::Load with memory of the caller's.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options,
                                              const EngineMemory& memory);
};

}  // namespace segue
