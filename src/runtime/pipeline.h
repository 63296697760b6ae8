// The stages of a request on one model: encode, denoise step by step, decode.
//
// Source: QwenImagePipeline.__call__ of diffusers 0.42. Denoising advances any number of requests
// in one packed forward, each at its own step of its own schedule; every request's bytes are those
// it would get alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/thread_pool.h"
#include "model/layers/forward_context.h"
#include "model/layers/placement.h"
#include "model/qwen_image.h"
#include "runtime/request_state.h"

namespace segue::runtime {

// For one thread. Its workspace grows to the largest stage it has run and is shared by all.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Text rows of the request's prompts, and its initial latents. Errors: no memory, an embedding
  // that is not finite.
  Status Encode(RequestState& request);

  // Mounts the gates that the request's settings ask for, from its next step on.
  void Mount(RequestState& request) const;

  // One step of every request, all in one packed forward. A request whose step fails has the error
  // as its status and is otherwise as it was before the step; the others have advanced. When the
  // forward of all fails as a whole (no memory for it, say), each is run alone: the bytes are the
  // same. Precondition: at least one request, none done, every status ok, all with the same tier
  // and gates.
  void Denoise(Span<RequestState* const> requests);

  // The picture of a request that is done. Errors: no memory, a sample that is not finite.
  Status Decode(RequestState& request);

  // Of a GPU's memory, for a flag, taken with the first check of it.
  static constexpr int64_t kFlagBytes = Arena::kAlignment;

  // To be called before a request that was denoised is destroyed.
  virtual void Forget(const RequestState&) {}

  // Enough workspace for these stages, so that no later one has to ask for it. Errors: no memory.
  Status Reserve(int64_t bytes);

 protected:
  // The workspace is of a memory of its own, which may be one that grows in place.
  // Precondition: what the arguments point to outlives the pipeline.
  Pipeline(const model::QwenImage& model, const model::ForwardContext& context,
           const model::Placement& placement, DeviceMemory& memory, DeviceMemory& workspace_memory,
           ThreadPool& host_pool);

  const model::QwenImage& model() const { return *model_; }
  const model::ForwardContext& context() const { return context_; }
  // Of a forward with these gates. That they are off elsewhere needs no undoing: the context that
  // all else runs in has none.
  model::ForwardContext GatedContext(const quality::MountedGates& mounted) const;
  const model::Placement& placement() const { return placement_; }
  DeviceMemory& memory() const { return *memory_; }
  // Empty, with room for what Reserve was last asked for.
  Arena& workspace() { return workspace_; }

  Status UseWorkspace(int64_t bytes);
  Status CheckFinite(const MatrixView& values, const char* operation, const std::string& argument);

 private:
  // An error is of the whole forward and leaves the requests as they were.
  virtual Status DenoiseTogether(Span<RequestState* const> requests) = 0;
  // Waits for what is under way for a request whose steps have all been asked for. Errors: what
  // went wrong in it.
  virtual Status FinishSteps(RequestState& request) = 0;
  // Prompts of so many ids each, of which so many rows are kept, are about to be encoded.
  virtual Status BeforeEncode(Span<const int64_t>, Span<const int64_t>) { return {}; }
  // A picture of this grid is about to be decoded.
  virtual Status BeforeDecode(int64_t, int64_t) { return {}; }
  // Something else is about to use the workspace; it is about to move.
  virtual void WorkspaceChanges() {}
  virtual void WorkspaceMoves() {}

  Status SetInitialLatents(RequestState& request);
  // The same settings for operations on host memory.
  kernels::Context HostKernels() const;

  const model::QwenImage* model_;
  model::ForwardContext context_;
  model::Placement placement_;
  DeviceMemory* memory_;
  DeviceMemory* workspace_memory_;
  ThreadPool* host_pool_;
  Arena workspace_;
  // Requests that there was no memory for together: they go on alone, without asking for it at
  // every step again, which would cost the workspace that there is.
  std::vector<RequestId> apart_;
  Arena finite_memory_;
};

// Denoising on the host, one step at a time.
class HostPipeline : public Pipeline {
 public:
  HostPipeline(const model::QwenImage& model, const model::ForwardContext& context,
               DeviceMemory& memory);

 private:
  Status DenoiseTogether(Span<RequestState* const> requests) override;
  Status FinishSteps(RequestState&) override { return {}; }
  Result<const model::DitBatch*> BatchFor(Span<RequestState* const> requests);
  Status FinishStep(RequestState& request, const MatrixView& prompt_velocity,
                    const MatrixView& negative_velocity);

  struct Batch {
    std::vector<RequestId> ids;  // whom it was made for
    std::optional<model::DitBatch> rows;
  };
  std::map<quality::MountedGates, Batch> batches_;  // the last of each
};

// "step.007.", so that names sort as steps do.
std::string StepStage(int step);

}  // namespace segue::runtime
