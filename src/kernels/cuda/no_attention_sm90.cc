// Linked instead of the kernel, and of the one that makes schedules, where the build has no CUDA.
#include "kernels/attention_sm90.h"
#include "kernels/cuda/no_cuda.h"
#include "kernels/refresh_schedule.h"

namespace segue::kernels {

Result<int32_t> AttentionSm90Ctas() { return NoCuda("attention", "sm90"); }

Status AttentionSm90(const AttentionSm90Params&, const Stream&) {
  return NoCuda("attention", "sm90");
}

Status RefreshSchedule(const ScheduleShape&, const SegmentRows*, const int32_t*, void*,
                       const Stream&) {
  return NoCuda("refresh the attention schedule", "sm90");
}

}  // namespace segue::kernels
