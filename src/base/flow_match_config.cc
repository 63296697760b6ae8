#include "base/flow_match_config.h"

#include <string>

#include "base/check.h"

namespace segue {

Status FlowMatchConfig::Validate() const {
  constexpr const char* kOperation = "check noise schedule configuration";
  // Sequence lengths and train steps far above any real schedule, and far below overflow.
  constexpr int64_t kMaxCount = int64_t{1} << 31;
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "num_train_timesteps", num_train_timesteps, 1, kMaxCount));
  SEGUE_RETURN_IF_ERROR(CheckPositive(kOperation, "shift", shift));
  SEGUE_RETURN_IF_ERROR(CheckFinite(kOperation, "base_shift", base_shift));
  SEGUE_RETURN_IF_ERROR(CheckFinite(kOperation, "max_shift", max_shift));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "base_image_seq_len", base_image_seq_len, 1, kMaxCount));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "max_image_seq_len", max_image_seq_len, 1, kMaxCount));
  if (base_image_seq_len == max_image_seq_len) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "max_image_seq_len",
                 std::to_string(max_image_seq_len), "a value other than base_image_seq_len"};
  }
  // Written so that a NaN fails too.
  if (shift_terminal && !(*shift_terminal > 0 && *shift_terminal < 1)) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "shift_terminal",
                 std::to_string(*shift_terminal), "a number between 0 and 1"};
  }
  return {};
}

}  // namespace segue
