// The seam between attention::Plan and the back ends that serve plans.
//
// A back end declares its PlanBackend here and stands in the list of plan_registry.cc, in the order
// of preference. Plan checks everything that does not depend on the back end before it asks one;
// what a back end may rely on stands below.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "segue/attention_plan.h"

namespace segue::attention {

// What one back end made of a plan's settings. Calls on one object never overlap.
class BackendPlan {
 public:
  BackendPlan() = default;
  BackendPlan(const BackendPlan&) = delete;
  BackendPlan& operator=(const BackendPlan&) = delete;
  virtual ~BackendPlan() = default;

  virtual int64_t workspace_bytes() const = 0;
  virtual Status Prepare(void* workspace, void* stream) = 0;
  // `rows` were checked: at most max_sequences sequences of max_segments entries each, every one
  // inside its tensors, no more than max_query_rows query rows. On kCuda the stream is not being
  // captured. `rows` dies with the call.
  virtual Status SetLengths(std::span<const SegmentRows> rows, void* workspace, void* stream) = 0;
  // Precondition: settings.device_lengths. Nothing about what is pointed at was checked.
  virtual Status Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace,
                         void* stream) = 0;
  // There are as many tensor sets as in the settings, each with the rows planned; tensors with rows
  // have a pointer; no stride is negative, head strides are filled in, and an output's strides hold
  // head_dim elements where there are several rows or heads. Inputs may repeat memory. Where lse is
  // not null lse_stride holds max_query_rows. Errors: what the back end cannot take, before any
  // launch.
  virtual Status Run(std::span<const TensorSet> tensors, float* lse, int64_t lse_stride,
                     void* workspace, void* stream) const = 0;
  virtual Result<LengthsReport> ReadReport(void* workspace, void* stream) const = 0;
  // `rows` checked as for SetLengths. `workers` have the right number; Plan fills in their loads.
  // Error (kUnsupported): the order is the library's own.
  virtual Result<WorkList> Work(std::span<const SegmentRows> rows) const = 0;
};

struct PlanBackend {
  const char* name;
  Place place;  // the only one it works in; it is not asked about plans for the other
  // Empty when it can serve these settings, otherwise the reason it cannot. Settings were checked
  // and are complete: max_query_rows is resolved, gpu is present where the place is kCuda. Asked
  // only when no back end before it accepts.
  std::string (*rejects)(const PlanSettings& settings);
  Result<std::unique_ptr<BackendPlan>> (*make)(const PlanSettings& settings);
};

extern const PlanBackend kSm90PlanBackend;
extern const PlanBackend kCudnnPlanBackend;
extern const PlanBackend kCudaPlanBackend;
extern const PlanBackend kCpuPlanBackend;
extern const PlanBackend kRefPlanBackend;

}  // namespace segue::attention
