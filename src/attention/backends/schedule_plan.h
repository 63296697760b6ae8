// Plans of kernels that follow a schedule in the workspace (kernels/attention_schedule.h): all of
// them but the launch. The schedule is written from the host through page-locked memory or by the
// refresh kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/backends/plan_backend.h"
#include "attention/backends/schedule_upload.h"
#include "device/upload_ring.h"
#include "kernels/attention_call.h"
#include "kernels/schedule_builder.h"

namespace segue::attention {

class SchedulePlan : public BackendPlan {
 public:
  explicit SchedulePlan(const PlanSettings& settings);

  // What no schedule has room for, or no code for the GPU; empty: it serves these settings.
  // `wanted` follows the GPU's compute capability where that is not 9.0.
  static std::string Rejects(const PlanSettings& settings, const char* wanted);
  // What the settings say of every call. A plan without tensors has batches without rows.
  static void Fill(const PlanSettings& settings, kernels::AttentionCall& call);

  // The schedule, then two counters of int32: what is written once a step and what every call may
  // write share no cache line.
  int64_t workspace_bytes() const override { return CountersOffset() + kCounterBytes; }
  Status Prepare(void* workspace, void* stream) override;
  Status SetLengths(Span<const SegmentRows> rows, void* workspace, void* stream) override;
  Status Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace,
                 void* stream) override;
  Result<LengthsReport> ReadReport(void* workspace, void* stream) const override;

 protected:
  // A schedule on the host, for those who look at it.
  struct HostSchedule {
    kernels::ScheduleHeader header{};
    std::vector<kernels::SequenceRecord> sequences;
    std::vector<kernels::SegmentRecord> segments;  // max_segments each
    std::vector<kernels::WorkItem> work;
  };

  const PlanSettings& settings() const { return settings_; }
  const kernels::ScheduleShape& shape() const { return shape_; }
  // Zero after Prepare.
  int32_t* CountersIn(void* workspace) const {
    return reinterpret_cast<int32_t*>(static_cast<uint8_t*>(workspace) + CountersOffset());
  }
  Result<HostSchedule> Build(Span<const SegmentRows> rows) const;

 private:
  static constexpr int64_t kCounterBytes = 256;

  int64_t CountersOffset() const;
  void Forget() { last_workspace_ = nullptr; }
  // Whether the workspace holds these lengths already, for whatever this stream does next.
  bool IsLast(Span<const SegmentRows> rows, void* workspace, void* stream) const;

  PlanSettings settings_;
  kernels::ScheduleShape shape_;
  kernels::ScheduleBuilder builder_;
  UploadRing uploads_;
  ScheduleUpload upload_;
  std::vector<SegmentRows> last_rows_;
  void* last_workspace_ = nullptr;
  void* last_stream_ = nullptr;
  bool replayed_ = false;
};

}  // namespace segue::attention
