// The memory an engine takes on a GPU, counted by the layouts it will use.
#pragma once

#include <cstdint>

#include "model/weights/checkpoint.h"
#include "runtime/settings.h"
#include "segue/status.h"

namespace segue::runtime {

// Bytes.
struct GpuMemoryPlan {
  int64_t weights = 0;       // as bfloat16, those of modulation included
  int64_t modulation = 0;    // the kept table
  int64_t libraries = 0;     // workspaces of products and convolutions, reordered filters
  int64_t request = 0;       // latents and text rows
  int64_t text_encoder = 0;  // the stages run one after another in one workspace
  int64_t transformer = 0;
  int64_t vae = 0;

  int64_t peak() const;
};

// For one picture of these settings whose prompts have `text_rows` rows each. Reads headers only
// and needs no GPU: attention is planned for the current one, or for an H200 where there is none.
// Errors: weights that are missing or of another shape, no attention back end.
Result<GpuMemoryPlan> PlanGpuMemory(const model::Checkpoint& checkpoint, const Settings& settings,
                                    int64_t text_rows);

}  // namespace segue::runtime
