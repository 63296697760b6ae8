#include "model/vae/config.h"

#include <cmath>
#include <string>

#include "base/check.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "check VAE configuration";

// `values` has `count` finite entries; positive ones where that is asked for.
Status CheckStatistics(const char* field, const std::vector<float>& values, int64_t count,
                       bool positive) {
  if (static_cast<int64_t>(values.size()) != count) {
    return Error{ErrorCode::kInvalidArgument, kOperation, field,
                 std::to_string(values.size()) + " entries", "z_dim, " + std::to_string(count)};
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string entry = std::string(field) + "[" + std::to_string(i) + "]";
    SEGUE_RETURN_IF_ERROR(positive ? CheckPositive(kOperation, entry, values[i])
                                   : CheckFinite(kOperation, entry, values[i]));
  }
  return {};
}

}  // namespace

Status VaeConfig::Validate() const {
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "base_dim", base_dim, 1, 1 << 16));
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "z_dim", z_dim, 1, 4096));
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "num_res_blocks", num_res_blocks, 1, 64));
  if (input_channels != 3) {
    return Error{ErrorCode::kUnsupported, kOperation, "input_channels",
                 std::to_string(input_channels), "3 (RGB)"};
  }
  if (temporal_downsample.size() != 3) {
    return Error{ErrorCode::kUnsupported, kOperation, "temperal_downsample",
                 std::to_string(temporal_downsample.size()) + " entries",
                 "3 (8 pixels per latent, as the pipeline packs)"};
  }
  if (dim_mult.size() != temporal_downsample.size() + 1) {
    return Error{
        ErrorCode::kInvalidArgument, kOperation, "dim_mult",
        std::to_string(dim_mult.size()) + " entries",
        std::to_string(temporal_downsample.size() + 1) + " (one more than temperal_downsample)"};
  }
  for (int64_t factor : dim_mult) {
    SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "dim_mult", factor, 1, 64));
  }
  // Up blocks 1.. take half of what the one before gave, so all but the last up block's width
  // (dim_mult in reverse) must be even.
  for (size_t i = 1; i < dim_mult.size(); ++i) {
    if (base_dim * dim_mult[i] % 2 != 0) {
      return Error{ErrorCode::kInvalidArgument, kOperation, "base_dim * dim_mult",
                   std::to_string(base_dim * dim_mult[i]), "an even number"};
    }
  }
  SEGUE_RETURN_IF_ERROR(CheckStatistics("latents_mean", latents_mean, z_dim, false));
  return CheckStatistics("latents_std", latents_std, z_dim, true);
}

}  // namespace segue::model
