// A denoising step for one shape of batch, recorded once on a GPU and replayed for every prompt
// that fits. On the host it runs as it is.
//
// The shape is image sizes and text slots. All else is data in the step's memory: row counts,
// timesteps, guidance, latents, prompt embeddings. Sequences, requests and modulation are named by
// index in that data, so that nothing which a graph recorded depends on who runs in it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/gpu_graph.h"
#include "kernels/sampler_step.h"
#include "model/dit/dit.h"
#include "model/dit/planned_attention.h"
#include "model/layers/placement.h"
#include "runtime/request_state.h"

namespace segue::runtime {

struct SequenceShape {
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  int64_t text_slot = 0;  // rows

  auto operator<=>(const SequenceShape&) const = default;
};

struct StepShape {
  // In the order of the batch: a request's prompt, then its negative prompt.
  std::vector<SequenceShape> sequences;
  quality::MountedGates mounted;

  auto operator<=>(const StepShape&) const = default;
  // "64x64+64 64x64+128 lossless": tokens of the picture and text rows of every sequence, tier and
  // gates.
  std::string ToString() const;
};

// Precondition: they may share a forward, and there is at least one.
StepShape ShapeOf(Span<RequestState* const> requests);

// The blocks of a step, in the order of its layout.
struct StepBlocks {
  static StepBlocks LayOut(Arena& arena, const model::DitConfig& config,
                           const model::Placement& placement, const model::DitBatch& batch,
                           int64_t attention_bytes);

  MatrixView latents;   // [image rows, in_channels]
  MatrixView text;      // [text rows, hidden]
  MatrixView velocity;  // [image rows, in_channels]
  // Written when the step takes over the memory.
  int32_t* image_slot = nullptr;      // [image rows]: each row's sequence
  int32_t* text_slot = nullptr;       // [text rows]
  int32_t* image_position = nullptr;  // [image rows]
  int32_t* text_position = nullptr;   // [text rows]
  float* cos = nullptr;               // [positions, head_dim / 2]
  float* sin = nullptr;
  model::DitLengths lengths;
  // Written before every step.
  int32_t* modulation = nullptr;              // [sequences]
  kernels::SamplerRecord* records = nullptr;  // [sequences]: as many requests at most
  // Written by it.
  int32_t* image_modulation = nullptr;  // [image rows]
  int32_t* text_modulation = nullptr;   // [text rows]
  int32_t* not_finite = nullptr;        // [sequences]
  model::DitWorkspace forward;
  void* attention = nullptr;
};

// The error that the first step would give: no admitted back end, or not the one that was asked
// for.
Status CheckGpuAttention(const model::DitConfig& config, const model::Placement& placement,
                         const std::string& backend);

// Not thread-safe. Its memory is the pipeline's workspace, which other stages and steps use too:
// Occupy() must precede the first Enqueue after any of them.
class RecordedStep {
 public:
  // Host only. Errors: a batch that cannot be; no attention back end.
  static Result<RecordedStep> Create(const model::Dit& dit, const model::Placement& placement,
                                     const StepShape& shape, const std::string& attention_backend);

  // Of the workspace it runs in.
  int64_t bytes() const;
  const StepShape& shape() const { return shape_; }
  const StepBlocks& blocks() const { return blocks_; }
  const model::DitBatch& batch() const { return batch_; }
  const attention::Plan& attention_plan() const { return attention_.plan(); }

  // Takes over the workspace: writes tables, this batch's text rows and lengths.
  // Precondition: the requests have this step's shape, the arena is empty.
  Status Occupy(Arena& arena, Span<RequestState* const> requests, const Stream& stream);

  // What is recorded: the forward, then guidance and the Euler step of every request. `table` is
  // the modulation's; the context's gated sites are the shape's. Errors: a refused launch.
  Status EnqueueForward(const MatrixView& table, const model::ForwardContext& context);
  Status EnqueueSampler(const model::ForwardContext& context);

  // Steps that ran launch by launch.
  int64_t runs() const { return runs_; }
  void CountRun() { ++runs_; }
  // Whether it ran once without the other ranks of its group.
  bool& rehearsed() { return rehearsed_; }
  std::optional<GpuGraph>& graph() { return graph_; }
  // What the graph runs.
  std::vector<kernels::KernelLog::Tally>& graph_calls() { return graph_calls_; }
  // Why the last recording failed; empty: it did not.
  std::string& graph_problem() { return graph_problem_; }

 private:
  RecordedStep(const model::Dit& dit, const model::Placement& placement, StepShape shape,
               model::DitBatch batch, model::PlannedDitAttention attention);
  Status WriteTables(const Stream& stream) const;
  Status ClearSlot(size_t sequence, int64_t rows, const Stream& stream) const;

  const model::Dit* dit_;
  model::Placement placement_;
  StepShape shape_;
  model::DitBatch batch_;
  model::PlannedDitAttention attention_;
  StepBlocks blocks_;
  std::optional<GpuGraph> graph_;
  std::string graph_problem_;
  std::vector<kernels::KernelLog::Tally> graph_calls_;
  int64_t runs_ = 0;
  bool rehearsed_ = false;
};

}  // namespace segue::runtime
