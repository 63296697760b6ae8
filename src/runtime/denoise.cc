// The denoising step: one packed forward for all requests, then each one's own arithmetic.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/euler_step.h"
#include "kernels/guidance.h"
#include "model/memory_plan.h"
#include "runtime/exceptions.h"
#include "runtime/pipeline.h"

namespace segue::runtime {

HostPipeline::HostPipeline(const model::QwenImage& model, const model::ForwardContext& context,
                           DeviceMemory& memory)
    : Pipeline(model, context, context.communicator->size(), memory, memory,
               context.kernels.stream.pool()) {}

// Sequences in the order of the requests, a guided request's prompt before its negative prompt.
// What a batch holds changes only when a request joins or leaves.
Result<const model::DitBatch*> HostPipeline::BatchFor(Span<RequestState* const> requests) {
  std::vector<RequestId> ids;
  std::vector<model::DitSequence> sequences;
  for (const RequestState* request : requests) {
    ids.push_back(request->id);
    for (const MatrixView& text : OwnText(*request)) {
      sequences.push_back({.text_rows = text.rows,
                           .grid_height = request->settings.grid_height(),
                           .grid_width = request->settings.grid_width(),
                           .timestep = static_cast<int32_t>(ids.size()) - 1});
    }
  }
  Batch& batch = batches_[requests[0]->quality.mounted];
  if (batch.rows && ids == batch.ids) return &*batch.rows;
  batch.rows.reset();
  SEGUE_ASSIGN_OR_RETURN(batch.rows, model::DitBatch::Create(model().config().dit, sequences));
  batch.ids = std::move(ids);
  return &*batch.rows;
}

Span<const MatrixView> HostPipeline::OwnText(const RequestState& request) const {
  const std::vector<MatrixView>& text = request.blocks.text;
  if (!place().splits_branches) return text;
  return {&text[static_cast<size_t>(place().group->rank())], 1};
}

int64_t HostPipeline::StepBytes(const model::DitBatch& batch) const {
  const model::ModelConfig& config = model().config();
  Arena other;
  if (place().splits_branches) {
    other.TakeMatrix("velocity", batch.image_rows(), config.dit.in_channels);
  }
  return other.peak_bytes() + model::DenoiseBytes(config, context().communicator->size(),
                                                  batch.image_rows(), batch.text_rows(),
                                                  batch.timesteps());
}

Status HostPipeline::PrepareStep(Span<RequestState* const> requests) {
  SEGUE_ASSIGN_OR_RETURN(const model::DitBatch* batch, BatchFor(requests));
  return Reserve(StepBytes(*batch));
}

Status HostPipeline::ExchangeBranches(Span<const MatrixView> velocities) const {
  const auto own = static_cast<size_t>(place().group->rank());
  const MatrixView& other = velocities[1 - own];
  SEGUE_RETURN_IF_ERROR(FillNegativeZeros(other, context().kernels.stream));
  const comm::SumPart parts[] = {{velocities[0], velocities[0]}, {velocities[1], velocities[1]}};
  SEGUE_RETURN_IF_ERROR(place().group->AllReduceSum(parts, context().kernels));
  return place().group->EndRun(context().kernels);
}

Status HostPipeline::DenoiseTogether(Span<RequestState* const> requests) {
  SEGUE_ASSIGN_OR_RETURN(const model::DitBatch* batch, BatchFor(requests));
  const model::ForwardContext gated = GatedContext(requests[0]->quality.mounted);
  const model::ModelConfig& config = model().config();
  SEGUE_RETURN_IF_ERROR(UseWorkspace(StepBytes(*batch)));
  // Of both branches, or of each branch in one.
  std::array<MatrixView, 2> velocities;
  const bool splits = place().splits_branches;
  for (size_t i = 0; i < (splits ? 2 : 1); ++i) {
    velocities[i] = workspace().TakeMatrix("velocity", batch->image_rows(), config.dit.in_channels);
  }
  const MatrixView& velocity = velocities[splits ? static_cast<size_t>(place().group->rank()) : 0];
  std::vector<float> timesteps;
  std::vector<model::DitSequenceInput> inputs;
  for (const RequestState* request : requests) {
    const auto step = static_cast<size_t>(request->step);
    timesteps.push_back(ModelTimestep(request->schedule.timesteps[step],
                                      context().rounding == kernels::Rounding::kBF16));
    for (const MatrixView& text : OwnText(*request)) {
      inputs.push_back({.latents = request->blocks.latents, .text = text});
    }
  }
  SEGUE_RETURN_IF_ERROR(model().dit().Forward(
      *batch, {.sequences = inputs, .timesteps = timesteps, .velocity = velocity}, workspace(),
      gated));
  if (splits) SEGUE_RETURN_IF_ERROR(ExchangeBranches(velocities));

  size_t sequence = 0;
  for (RequestState* request : requests) {
    const int64_t rows = request->settings.image_rows();
    const MatrixView prompt = velocities[0].Rows(batch->image_begin(sequence), rows);
    MatrixView negative;
    if (splits) negative = velocities[1].Rows(batch->image_begin(sequence), rows);
    if (!splits && request->settings.guided) {
      negative = velocities[0].Rows(batch->image_begin(sequence + 1), rows);
    }
    sequence += OwnText(*request).size();
    request->status =
        WithoutExceptions("denoise", [&] { return FinishStep(*request, prompt, negative); });
  }
  return {};
}

// Guidance, the Euler step, and the check that the result is a picture in the making.
Status HostPipeline::FinishStep(RequestState& request, const MatrixView& prompt_velocity,
                                const MatrixView& negative_velocity) {
  const auto step = static_cast<size_t>(request.step);
  const std::string stage = StepStage(request.step);
  const std::string where =
      "step " + std::to_string(step + 1) + " of " + std::to_string(request.schedule.steps()) + ": ";
  const bool guided = request.settings.guided;
  if (request.keep_stages) {
    SEGUE_RETURN_IF_ERROR(
        KeepStage(request, stage + "velocity.prompt", prompt_velocity, context().kernels.stream));
    if (guided) {
      SEGUE_RETURN_IF_ERROR(KeepStage(request, stage + "velocity.negative", negative_velocity,
                                      context().kernels.stream));
    }
  }
  SEGUE_RETURN_IF_ERROR(CheckFinite(prompt_velocity, "denoise", where + "velocity"));
  if (guided) {
    SEGUE_RETURN_IF_ERROR(
        CheckFinite(negative_velocity, "denoise", where + "velocity of the negative prompt"));
    SEGUE_RETURN_IF_ERROR(kernels::Guidance({.cond = prompt_velocity,
                                             .negative = negative_velocity,
                                             .y = prompt_velocity,
                                             .scale = static_cast<float>(request.settings.guidance),
                                             .rounding = context().rounding},
                                            context().kernels));
  }
  const std::vector<float>& sigmas = request.schedule.sigmas;
  SEGUE_RETURN_IF_ERROR(kernels::EulerStep({.x = request.blocks.latents,
                                            .v = prompt_velocity,
                                            .dt = sigmas[step + 1] - sigmas[step],
                                            .rounding = context().rounding},
                                           context().kernels));
  SEGUE_RETURN_IF_ERROR(CheckFinite(request.blocks.latents, "denoise", where + "latents"));
  if (request.keep_stages) {
    SEGUE_RETURN_IF_ERROR(
        KeepStage(request, stage + "velocity", prompt_velocity, context().kernels.stream));
    SEGUE_RETURN_IF_ERROR(
        KeepStage(request, stage + "latents", request.blocks.latents, context().kernels.stream));
  }
  request.attention_backend = model::HostDitAttention::Backend(model().config().dit, context());
  ++request.graph.eager;
  ++request.step;
  return {};
}

}  // namespace segue::runtime
