#include "segue/attention_plan.h"

#include <algorithm>
#include <utility>

#include "attention/backends/plan_backend.h"
#include "attention/plan_check.h"
#include "attention/plan_registry.h"
#include "attention/plan_work.h"
#include "attention/tensor_sets.h"
#include "device/gpu.h"

namespace segue::attention {

struct Plan::State {
  PlanSettings settings;
  std::vector<BackendChoice> choices;
  const PlanBackend* backend = nullptr;
  std::string name;
  std::unique_ptr<BackendPlan> plan;
  std::vector<SegmentRows> rows;  // last set from the host
  bool has_lengths = false;
  std::vector<const void*> prepared;  // workspaces, where they have memory

  Status CheckWorkspace(const char* operation, const void* workspace) const;
  // A call that cannot be part of a graph.
  Status CheckEager(const char* operation, const char* instead, void* stream) const;
};

Status Plan::State::CheckWorkspace(const char* operation, const void* workspace) const {
  const int64_t bytes = plan->workspace_bytes();
  if (bytes == 0) return {};
  if (workspace == nullptr) {
    return Invalid(operation, "workspace", "null", std::to_string(bytes) + " bytes");
  }
  if (std::find(prepared.begin(), prepared.end(), workspace) == prepared.end()) {
    return Invalid(operation, "workspace", "memory that Prepare has not seen",
                   "one that was prepared with this plan");
  }
  return {};
}

Status Plan::State::CheckEager(const char* operation, const char* instead, void* stream) const {
  if (settings.place != Place::kCuda) return {};
  SEGUE_ASSIGN_OR_RETURN(const bool capturing, IsCapturing(stream));
  if (!capturing) return {};
  return Invalid(operation, "stream", "one that is being captured", instead);
}

Result<Gpu> CurrentGpu() {
  const Result<GpuTraits> traits = CurrentGpuTraits();
  if (!traits) return traits.error();
  return Gpu{.compute_capability = traits->compute_capability,
             .multiprocessors = traits->multiprocessors};
}

Plan::Plan(std::unique_ptr<State> state) : state_(std::move(state)) {}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

Result<Plan> Plan::Create(const PlanSettings& settings) {
  SEGUE_RETURN_IF_ERROR(CheckSettings(settings));
  auto state = std::make_unique<State>();
  state->settings = settings;
  PlanSettings& complete = state->settings;
  if (complete.max_query_rows == 0) {
    for (const TensorRows& tensor : complete.tensors) complete.max_query_rows += tensor.q_rows;
  }
  std::string no_gpu;
  if (complete.place == Place::kCuda && !complete.gpu) {
    const Result<Gpu> gpu = CurrentGpu();
    if (gpu) {
      complete.gpu = *gpu;
    } else {
      no_gpu = gpu.error().got;
    }
  }
  SEGUE_ASSIGN_OR_RETURN(PlanChoice choice, ChooseBackend(complete, no_gpu));
  state->backend = choice.backend;
  state->name = choice.backend->name;
  state->choices = std::move(choice.choices);
  SEGUE_ASSIGN_OR_RETURN(state->plan, choice.backend->make(complete));
  return Plan(std::move(state));
}

const PlanSettings& Plan::settings() const { return state_->settings; }
const std::string& Plan::backend() const { return state_->name; }
const std::vector<BackendChoice>& Plan::choices() const { return state_->choices; }
int64_t Plan::workspace_bytes() const { return state_->plan->workspace_bytes(); }

Status Plan::Prepare(void* workspace, void* stream) {
  constexpr char kOp[] = "prepare attention";
  const int64_t bytes = workspace_bytes();
  if (bytes > 0 && (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 256 != 0)) {
    return Invalid(kOp, "workspace", workspace == nullptr ? "null" : "a pointer between",
                   std::to_string(bytes) + " bytes at a multiple of 256");
  }
  SEGUE_RETURN_IF_ERROR(state_->CheckEager(kOp, "a stream that runs", stream));
  SEGUE_RETURN_IF_ERROR(state_->plan->Prepare(workspace, stream));
  std::vector<const void*>& prepared = state_->prepared;
  if (std::find(prepared.begin(), prepared.end(), workspace) == prepared.end()) {
    prepared.push_back(workspace);
  }
  return {};
}

Status Plan::SetLengths(std::span<const SegmentRows> rows, void* workspace, void* stream) {
  constexpr char kOp[] = "set attention lengths";
  SEGUE_RETURN_IF_ERROR(CheckLengths(state_->settings, rows));
  SEGUE_RETURN_IF_ERROR(state_->CheckWorkspace(kOp, workspace));
  SEGUE_RETURN_IF_ERROR(state_->CheckEager(
      kOp, "Refresh inside a capture: a graph would replay these lengths only", stream));
  SEGUE_RETURN_IF_ERROR(state_->plan->SetLengths(rows, workspace, stream));
  state_->rows.assign(rows.begin(), rows.end());
  state_->has_lengths = true;
  return {};
}

Status Plan::Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace,
                     void* stream) {
  constexpr char kOp[] = "refresh attention lengths";
  if (!state_->settings.device_lengths) {
    return Invalid(kOp, "device_lengths", "false", "a plan made for lengths in device memory");
  }
  if (rows == nullptr || sequences == nullptr) {
    return Invalid(kOp, rows == nullptr ? "rows" : "sequences", "null", "device memory");
  }
  SEGUE_RETURN_IF_ERROR(state_->CheckWorkspace(kOp, workspace));
  SEGUE_RETURN_IF_ERROR(state_->plan->Refresh(rows, sequences, workspace, stream));
  state_->has_lengths = true;
  return {};
}

Status Plan::Run(std::span<const TensorSet> tensors, float* lse, int64_t lse_stride,
                 void* workspace, void* stream) const {
  constexpr char kOp[] = "run attention";
  std::vector<TensorSet> complete(tensors.begin(), tensors.end());
  SEGUE_RETURN_IF_ERROR(CompleteTensors(state_->settings, complete));
  if (lse != nullptr && !state_->settings.wants_lse) {
    return Invalid(kOp, "lse", "memory for it", "null, as planned (wants_lse)");
  }
  if (lse != nullptr && lse_stride < state_->settings.max_query_rows) {
    return Invalid(kOp, "lse_stride", std::to_string(lse_stride),
                   "at least max_query_rows, " + std::to_string(state_->settings.max_query_rows));
  }
  SEGUE_RETURN_IF_ERROR(state_->CheckWorkspace(kOp, workspace));
  if (!state_->has_lengths) return Invalid(kOp, "lengths", "none", "SetLengths or Refresh before");
  return state_->plan->Run(complete, lse, lse_stride, workspace, stream);
}

Result<LengthsReport> Plan::ReadReport(void* workspace, void* stream) const {
  constexpr char kOp[] = "read attention's report";
  SEGUE_RETURN_IF_ERROR(state_->CheckWorkspace(kOp, workspace));
  SEGUE_RETURN_IF_ERROR(state_->CheckEager(kOp, "a stream that runs", stream));
  return state_->plan->ReadReport(workspace, stream);
}

Result<WorkList> Plan::Work(std::span<const SegmentRows> rows) const {
  SEGUE_RETURN_IF_ERROR(CheckLengths(state_->settings, rows));
  SEGUE_ASSIGN_OR_RETURN(WorkList list, state_->plan->Work(rows));
  AssignWork(list);
  return list;
}

std::string Plan::ToString() const {
  std::string text = Describe(state_->settings, state_->choices);
  if (state_->rows.empty()) return text;
  const Result<WorkList> list = Work(state_->rows);
  const int64_t sequences = static_cast<int64_t>(state_->rows.size()) / settings().max_segments;
  text +=
      "lengths of " + std::to_string(sequences) + (sequences == 1 ? " sequence: " : " sequences: ");
  return text + (list ? Describe(*list) : list.error().Message()) + "\n";
}

PlanSettings PlanFor(const Batch& batch, const Options& options, Place place) {
  PlanSettings settings{.options = options, .place = place};
  // Not the tensors' sum: rows between sequences belong to none.
  for (const SegmentRows& rows : batch.rows) settings.max_query_rows += rows.q_rows;
  settings.max_sequences = std::max(batch.sequences(), 1);
  settings.max_segments = std::max(batch.segments, 1);
  for (const TensorSet& set : batch.tensors) {
    settings.tensors.push_back({.q_rows = set.q_rows, .kv_rows = set.kv_rows});
  }
  return settings;
}

}  // namespace segue::attention
