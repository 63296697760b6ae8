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
#include "runtime/rank_meeting.h"
#include "runtime/request_state.h"

namespace segue::runtime {

// The stages of requests, on one rank or on several.
class Stages {
 public:
  virtual ~Stages() = default;

  // Mounts the gates that the request's settings ask for, from its next step on.
  virtual void Mount(RequestState& request) const = 0;
  // Text rows of the request's prompts, and its initial latents. Errors: no memory, an embedding
  // that is not finite.
  virtual Status Encode(RequestState& request) = 0;
  // One step of every request, all in one packed forward. A request whose step fails has the error
  // as its status and is otherwise as it was before the step; the others have advanced. When the
  // forward of all fails as a whole (no memory for it, say), each is run alone: the bytes are the
  // same. Precondition: at least one request, none done, every status ok, all with the same tier
  // and gates.
  virtual void Denoise(Span<RequestState* const> requests) = 0;
  // The picture of a request that is done. Errors: no memory, a sample that is not finite.
  virtual Status Decode(RequestState& request) = 0;
  // To be called before a request that was encoded is destroyed.
  virtual void Forget(const RequestState& request) = 0;
  // The error after which nothing runs any more.
  virtual Status health() const { return {}; }
};

// A pipeline's place among those that run the same requests.
struct RankPlace {
  // All of them; null: there is one.
  const comm::Communicator* group = nullptr;
  RankMeeting* meeting = nullptr;  // of the group
  // Whether a rank runs one guidance branch, the prompt's on rank 0 and the negative prompt's on
  // rank 1, and they exchange velocities; otherwise each runs its part of both.
  bool splits_branches = false;
};

// For one thread. Its workspace grows to the largest stage it has run and is shared by all.
class Pipeline : public Stages {
 public:
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void Mount(RequestState& request) const override;
  Status Encode(RequestState& request) override;
  void Denoise(Span<RequestState* const> requests) override;
  Status Decode(RequestState& request) override;
  void Forget(const RequestState&) override {}

  // Before the first request: this pipeline is one of a group's, all of which get the same calls
  // of Denoise in the same order.
  void JoinRanks(const RankPlace& place) { place_ = place; }
  // What Encode does on a rank that has no text encoder: blocks, and the same initial latents. Text
  // rows come by ShareText. Errors: no memory.
  Status Follow(RequestState& request);
  // Gives the text rows that rank 0 has encoded to all ranks. Every rank calls it. Errors: those of
  // the sum.
  Status ShareText(const RequestState& request) const;

  // Of a GPU's memory, for a flag, taken with the first check of it.
  static constexpr int64_t kFlagBytes = Arena::kAlignment;

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
  const RankPlace& place() const { return place_; }
  DeviceMemory& memory() const { return *memory_; }
  // Empty, with room for what Reserve was last asked for.
  Arena& workspace() { return workspace_; }

  Status UseWorkspace(int64_t bytes);
  Status CheckFinite(const MatrixView& values, const char* operation, const std::string& argument);

 private:
  // Takes the memory of a step: what may fail on one rank alone. The ranks agree on the outcome.
  virtual Status PrepareStep(Span<RequestState* const>) { return {}; }
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

  // PrepareStep and DenoiseTogether, so that all ranks or none run.
  Status RunTogether(Span<RequestState* const> requests);
  Status TakeBlocks(RequestState& request);
  Status SetInitialLatents(RequestState& request);
  // The same settings for operations on host memory.
  kernels::Context HostKernels() const;

  const model::QwenImage* model_;
  model::ForwardContext context_;
  model::Placement placement_;
  RankPlace place_;
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
  Status PrepareStep(Span<RequestState* const> requests) override;
  Status DenoiseTogether(Span<RequestState* const> requests) override;
  Status FinishSteps(RequestState&) override { return {}; }
  Result<const model::DitBatch*> BatchFor(Span<RequestState* const> requests);
  // Text rows of the branches that run here.
  Span<const MatrixView> OwnText(const RequestState& request) const;
  int64_t StepBytes(const model::DitBatch& batch) const;
  // With a branch a rank: makes each rank's velocities known to both.
  Status ExchangeBranches(Span<const MatrixView> velocities) const;
  Status FinishStep(RequestState& request, const MatrixView& prompt_velocity,
                    const MatrixView& negative_velocity);

  struct Batch {
    std::vector<RequestId> ids;  // whom it was made for
    std::optional<model::DitBatch> rows;
  };
  std::map<quality::MountedGates, Batch> batches_;  // the last of each
};

// -0 in every element, which added to any number leaves it as it is: what ranks that have nothing
// to contribute bring to a sum.
Status FillNegativeZeros(const MatrixView& values, const Stream& stream);

// "step.007.", so that names sort as steps do.
std::string StepStage(int step);

}  // namespace segue::runtime
