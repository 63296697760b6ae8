#include "model/dit/config.h"

#include <string>

#include "base/check.h"

namespace segue::model {

Status DitConfig::Validate() const {
  constexpr const char* kOperation = "check transformer configuration";
  // 2^20: a product of three such sizes stays below 2^63, and no real width comes near it.
  constexpr int64_t kMaxSize = int64_t{1} << 20;
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "num_layers", num_layers, 1, 4096));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "num_attention_heads", num_attention_heads, 1, 4096));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "attention_head_dim", attention_head_dim, 2, 1024));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "num_attention_heads * attention_head_dim", hidden(), 2, kMaxSize));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "joint_attention_dim", joint_attention_dim, 1, kMaxSize));
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "in_channels", in_channels, 1, kMaxSize));
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "out_channels", out_channels, 1, kMaxSize));
  if (patch_size != 2) {
    return Error{ErrorCode::kUnsupported, kOperation, "patch_size", std::to_string(patch_size),
                 "2 (the pipeline packs latents 2x2)"};
  }
  int64_t rotated = 0;
  for (int64_t dim : axes_dims_rope) {
    SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "axes_dims_rope", dim, 0, attention_head_dim));
    if (dim % 2 != 0) {
      return Error{ErrorCode::kInvalidArgument, kOperation, "axes_dims_rope", std::to_string(dim),
                   "even dimensions (they rotate in pairs)"};
    }
    rotated += dim;
  }
  if (rotated != attention_head_dim) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "axes_dims_rope",
                 "a sum of " + std::to_string(rotated),
                 "attention_head_dim, " + std::to_string(attention_head_dim)};
  }
  if (proj_channels() != in_channels) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "patch_size^2 * out_channels",
                 std::to_string(proj_channels()), "in_channels, " + std::to_string(in_channels)};
  }
  return {};
}

}  // namespace segue::model
