// Denoising on a GPU: recorded steps, and a host that is at most one step ahead of them.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/gpu_stream.h"
#include "device/upload_ring.h"
#include "runtime/gpu_resources.h"
#include "runtime/modulation_cache.h"
#include "runtime/pipeline.h"
#include "runtime/recorded_step.h"

namespace segue::runtime {

struct GpuPipelineOptions {
  bool graphs = true;  // record steps; otherwise every step is enqueued launch by launch
  // Steps kept for shapes seen before.
  int64_t max_steps = 16;
  // Timesteps whose modulation is kept: five schedules of 50 steps.
  int64_t modulation_rows = 256;
};

// All work is on one stream. Denoise enqueues a step of every request and then waits for the one
// before, whose results it looks at: an error in a step is seen one step later, or when the request
// is decoded. Nothing else waits, but for requests that keep their stages.
class GpuPipeline : public Pipeline {
 public:
  // Numbers of timesteps whose modulation's products are chosen before the first request: one
  // step, and the commonest schedules' first call.
  static constexpr std::array<int64_t, 2> kWarmTimesteps = {1, 50};

  // Precondition: what the arguments point to outlives the pipeline; the context's stream is the
  // resources'. `tabulated`: a sealed cache where the weights for others are not there. Errors: no
  // memory.
  static Result<std::unique_ptr<GpuPipeline>> Create(
      const model::QwenImage& model, const model::ForwardContext& context, GpuResources& gpu,
      ThreadPool& host_pool, const GpuPipelineOptions& options,
      std::optional<ModulationCache> tabulated = std::nullopt);
  ~GpuPipeline() override;  // waits for the stream

  // Bytes of the workspace that a step of this shape takes. Host only.
  Result<int64_t> StepBytes(const StepShape& shape) const;

 private:
  // Results of a step, on their way to the host.
  struct InFlight {
    int32_t* not_finite = nullptr;  // page-locked, of every request
    int32_t capacity = 0;
    GpuEvent done;
    std::vector<RequestState*> requests;  // null: finished or cancelled meanwhile
    std::vector<int> steps;               // the step that each of them was in
  };

  GpuPipeline(const model::QwenImage& model, const model::ForwardContext& context,
              GpuResources& gpu, ThreadPool& host_pool, const GpuPipelineOptions& options);

  // Everything that allocates, chooses or instantiates: it would wait for sums that wait for it.
  Status PrepareStep(Span<RequestState* const> requests) override;
  Status DenoiseTogether(Span<RequestState* const> requests) override;
  Status FinishSteps(RequestState& request) override;
  void Forget(const RequestState& request) override;
  void WorkspaceChanges() override;
  void WorkspaceMoves() override;

  Status BeforeEncode(Span<const int64_t> lengths, Span<const int64_t> text_rows) override;
  Status BeforeDecode(int64_t grid_height, int64_t grid_width) override;
  // Chooses algorithms for products that have none yet, in the workspace.
  Status Warm(const model::ProductShapes& shapes);
  // The step for these requests, in possession of the workspace.
  Result<RecordedStep*> StepFor(Span<RequestState* const> requests);
  // Modulation of the whole schedules of requests that are about to begin.
  Status TabulateSchedules(Span<RequestState* const> requests);
  Status UploadStepData(const RecordedStep& step, Span<RequestState* const> requests);
  // The requests' latents into the step's, or back.
  Status CopyLatents(const RecordedStep& step, Span<RequestState* const> requests, bool into) const;
  Status Launch(RecordedStep& step, Span<RequestState* const> requests);
  Status LaunchWithStages(RecordedStep& step, Span<RequestState* const> requests);
  // The requests' latents out of the step, and its results on their way.
  Status EndStep(const RecordedStep& step, Span<RequestState* const> requests);
  Status Record(RecordedStep& step);
  // Runs the step once by itself, where the group has other ranks: kernels that are loaded when
  // they are first launched would be so while other GPUs wait for this one.
  Status Rehearse(RecordedStep& step, Span<RequestState* const> requests);
  // Records the step if it is time to.
  void RecordIfDue(RecordedStep& step, Span<RequestState* const> requests);
  // Room for the results of so many requests in the next flight.
  Status PrepareReadBack(int32_t count);
  Status StartReadBack(const RecordedStep& step, Span<RequestState* const> requests);
  // Waits for a step and gives its requests what went wrong in it.
  Status Collect(InFlight& flight);

  const GpuStream* stream_;
  GpuPipelineOptions options_;
  std::optional<ModulationCache> modulation_;
  std::list<RecordedStep> steps_;  // the one used last first
  RecordedStep* resident_ = nullptr;
  std::vector<RequestId> resident_ids_;
  UploadRing uploads_;
  DeviceMemory* pinned_;
  std::vector<InFlight> flights_;  // two, used in turn
  size_t next_flight_ = 0;
  bool recorded_now_ = false;  // the step under way was recorded for this run of it
};

}  // namespace segue::runtime
