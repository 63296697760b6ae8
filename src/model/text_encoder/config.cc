#include "model/text_encoder/config.h"

#include <string>

#include "base/check.h"

namespace segue::model {

Status TextEncoderConfig::Validate() const {
  constexpr const char* kOperation = "check text encoder configuration";
  // 2^20: a product of three such sizes stays below 2^63, and no real width comes near it.
  constexpr int64_t kMaxSize = int64_t{1} << 20;
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "hidden_size", hidden_size, 1, kMaxSize));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "intermediate_size", intermediate_size, 1, kMaxSize));
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "num_hidden_layers", num_hidden_layers, 1, 4096));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "num_attention_heads", num_attention_heads, 1, 4096));
  SEGUE_RETURN_IF_ERROR(
      CheckInRange(kOperation, "num_key_value_heads", num_key_value_heads, 1, num_attention_heads));
  // Ids are 32-bit.
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "vocab_size", vocab_size, 1, int64_t{1} << 30));
  SEGUE_RETURN_IF_ERROR(CheckInRange(kOperation, "max_position_embeddings", max_position_embeddings,
                                     1, int64_t{1} << 31));
  SEGUE_RETURN_IF_ERROR(CheckPositive(kOperation, "rms_norm_eps", rms_norm_eps));
  SEGUE_RETURN_IF_ERROR(CheckPositive(kOperation, "rope_theta", rope_theta));
  if (hidden_size % num_attention_heads != 0) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "hidden_size",
                 std::to_string(hidden_size),
                 "a multiple of num_attention_heads, " + std::to_string(num_attention_heads)};
  }
  if (num_attention_heads % num_key_value_heads != 0) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "num_key_value_heads",
                 std::to_string(num_key_value_heads),
                 "a divisor of num_attention_heads, " + std::to_string(num_attention_heads)};
  }
  if (head_dim() % 2 != 0 || head_dim() > 1024) {
    return Error{ErrorCode::kInvalidArgument, kOperation, "hidden_size / num_attention_heads",
                 std::to_string(head_dim()), "an even number up to 1024"};
  }
  return {};
}

}  // namespace segue::model
