// A plan of attention together with its workspace: what a network on a GPU calls once a layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/stream.h"
#include "kernels/registry.h"
#include "segue/attention_plan.h"

namespace segue::model {

class PlannedAttention {
 public:
  // Host only. Errors: those of attention::Plan::Create.
  static Result<PlannedAttention> Create(const attention::PlanSettings& settings);

  const attention::Plan& plan() const { return plan_; }
  // Of the memory that Prepare takes, aligned to 256.
  int64_t workspace_bytes() const { return plan_.workspace_bytes(); }

  // To be called before lengths are set, and again whenever something else wrote the workspace.
  Status Prepare(void* workspace, const Stream& stream);
  // The two ways lengths arrive (attention_plan.h).
  Status SetLengths(std::span<const attention::SegmentRows> rows, const Stream& stream);
  Status Refresh(const attention::SegmentRows* rows, const int32_t* sequences,
                 const Stream& stream);
  // Records in the context's log which back end ran and why those before it did not.
  Status Run(std::span<const attention::TensorSet> tensors, const kernels::Context& context) const;

 private:
  explicit PlannedAttention(attention::Plan plan);

  attention::Plan plan_;
  void* workspace_ = nullptr;
  const char* backend_ = nullptr;
  std::vector<kernels::KernelLog::Reason> passed_over_;
};

}  // namespace segue::model
