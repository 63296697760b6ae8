// The stages of a request on one model: encode, denoise step by step, decode.
//
// Source: QwenImagePipeline.__call__ of diffusers 0.42. Denoising advances any number of requests
// in one packed forward, each at its own step of its own schedule; every request's bytes are those
// it would get alone.
#pragma once

#include <optional>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/layers/forward_context.h"
#include "model/qwen_image.h"
#include "runtime/request_state.h"

namespace segue::runtime {

// For one thread. Its workspace grows to the largest stage it has run and is shared by all.
class Pipeline {
 public:
  // Precondition: what the arguments point to outlives the pipeline.
  Pipeline(const model::QwenImage& model, const model::ForwardContext& context,
           DeviceMemory& memory);

  // Text rows of the request's prompts, and its initial latents. Errors: no memory, an embedding
  // that is not finite.
  Status Encode(RequestState& request);

  // One step of every request, all in one packed forward. A request whose step fails has the error
  // as its status and is otherwise as it was before the step; the others have advanced. When the
  // forward of all fails as a whole (no memory for it, say), each is run alone: the bytes are the
  // same. Precondition: at least one request, none done, every status ok.
  void Denoise(Span<RequestState* const> requests);

  // The picture of a request that is done. Errors: no memory, a sample that is not finite.
  Status Decode(RequestState& request);

 private:
  Status Reserve(int64_t bytes);
  Status SetInitialLatents(RequestState& request);
  // An error is of the whole forward and leaves the requests as they were.
  Status DenoiseTogether(Span<RequestState* const> requests);
  Status PrepareBatch(Span<RequestState* const> requests);
  Status FinishStep(RequestState& request, const MatrixView& prompt_velocity,
                    const MatrixView& negative_velocity);
  Status CheckFinite(const MatrixView& values, const char* operation,
                     const std::string& argument) const;

  const model::QwenImage* model_;
  model::ForwardContext context_;
  DeviceMemory* memory_;
  Arena workspace_;
  std::vector<RequestId> batch_ids_;  // whom batch_ was made for
  std::optional<model::DitBatch> batch_;
};

}  // namespace segue::runtime
