// The memory an engine takes on a GPU, counted by the layouts it will use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/span.h"
#include "model/layers/placement.h"
#include "model/qwen_image.h"
#include "model/weights/checkpoint.h"
#include "runtime/request_state.h"
#include "runtime/settings.h"
#include "segue/status.h"

namespace segue::runtime {

// Bytes. What the driver takes for itself (contexts, code, graphs) comes on top.
struct GpuMemoryPlan {
  int64_t weights = 0;             // as bfloat16, without those of modulation
  int64_t modulation_weights = 0;  // 0 where they are not kept
  int64_t modulation = 0;          // the kept table
  int64_t libraries = 0;           // workspaces of products and convolutions, reordered filters
  int64_t requests = 0;            // latents and text rows of all, and a flag
  // The stages run one after another in one workspace; so does the choice of products' algorithms,
  // before each.
  int64_t text_encoder = 0;
  int64_t transformer = 0;
  int64_t vae = 0;
  int64_t choosing = 0;
  // While modulation is tabulated at load by weights that are not kept.
  int64_t tabulating = 0;

  int64_t peak() const;
};

// A request as far as memory goes.
struct PlannedRequest {
  static PlannedRequest Of(const RequestState& state);

  int64_t grid_height = 0;
  int64_t grid_width = 0;
  std::vector<int64_t> text_rows;  // of its prompt and, if it is guided, its negative prompt
};

// What is the same for all requests.
struct GpuPlanSettings {
  model::Placement placement;
  int64_t weights = 0;             // bytes of WeightGroup::kResident
  int64_t modulation_weights = 0;  // and of kModulation
  std::string attention_backend;
  // Steps whose modulation is tabulated at load, with weights that are not kept; 0: they are, and
  // any step's is.
  int64_t named_steps = 0;
};

// For requests that run together. Host only. Errors: no attention back end. Precondition: at least
// one request.
Result<GpuMemoryPlan> PlanGpuMemory(const model::QwenImage& model, const GpuPlanSettings& settings,
                                    Span<const PlannedRequest> requests);

// For one picture of these settings whose prompts have `text_rows` rows each: with any schedule,
// and with its own alone. Reads headers only and needs no GPU: attention is planned for the current
// one, or for an H200 where there is none. Errors: weights that are missing or of another shape, no
// attention back end.
struct GpuMemoryPlans {
  GpuMemoryPlan any_schedule;
  GpuMemoryPlan one_schedule;
};
Result<GpuMemoryPlans> PlanGpuMemory(const model::Checkpoint& checkpoint, const Settings& settings,
                                     int64_t text_rows);

}  // namespace segue::runtime
