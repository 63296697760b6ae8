// Linked instead of the kernel, and of the one that makes schedules, where the build has no CUDA.
#include "kernels/attention_sm90.h"
#include "kernels/refresh_schedule.h"

namespace segue::kernels {
namespace {

Error NoCuda(const char* operation) {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = "sm90",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda'"};
}

}  // namespace

Result<int32_t> AttentionSm90Ctas() { return NoCuda("attention"); }

Status AttentionSm90(const AttentionSm90Params&, const Stream&) { return NoCuda("attention"); }

Status RefreshSchedule(const ScheduleShape&, const SegmentRows*, const int32_t*, void*,
                       const Stream&) {
  return NoCuda("refresh the attention schedule");
}

}  // namespace segue::kernels
