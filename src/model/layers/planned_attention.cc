#include "model/layers/planned_attention.h"

#include <utility>

namespace segue::model {
namespace {

void* Handle(const Stream& stream) {
  return stream.device() == DeviceKind::kCuda ? stream.cuda_stream() : nullptr;
}

}  // namespace

PlannedAttention::PlannedAttention(attention::Plan plan) : plan_(std::move(plan)) {
  backend_ = kernels::Interned(plan_.backend());
  for (const attention::BackendChoice& choice : plan_.choices()) {
    if (choice.backend == plan_.backend()) break;
    passed_over_.push_back({kernels::Interned(choice.backend), kernels::Interned(choice.reason)});
  }
}

Result<PlannedAttention> PlannedAttention::Create(const attention::PlanSettings& settings) {
  SEGUE_ASSIGN_OR_RETURN(attention::Plan plan, attention::Plan::Create(settings));
  return PlannedAttention(std::move(plan));
}

Status PlannedAttention::Prepare(void* workspace, const Stream& stream) {
  workspace_ = workspace;
  return plan_.Prepare(workspace, Handle(stream));
}

Status PlannedAttention::SetLengths(std::span<const attention::SegmentRows> rows,
                                    const Stream& stream) {
  return plan_.SetLengths(rows, workspace_, Handle(stream));
}

Status PlannedAttention::Refresh(const attention::SegmentRows* rows, const int32_t* sequences,
                                 const Stream& stream) {
  return plan_.Refresh(rows, sequences, workspace_, Handle(stream));
}

Status PlannedAttention::Run(std::span<const attention::TensorSet> tensors,
                             const kernels::Context& context) const {
  if (context.log != nullptr) {
    context.log->Count("attention", backend_, {passed_over_.data(), passed_over_.size()});
  }
  return plan_.Run(tensors, nullptr, 0, workspace_, Handle(context.stream));
}

}  // namespace segue::model
