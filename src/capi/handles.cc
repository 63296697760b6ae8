#include "capi/handles.h"

namespace segue::capi {
namespace {

segue_result ResultOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return SEGUE_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return SEGUE_NOT_FOUND;
    case ErrorCode::kCorrupt:
      return SEGUE_CORRUPT;
    case ErrorCode::kUnsupported:
      return SEGUE_UNSUPPORTED;
    case ErrorCode::kIo:
      return SEGUE_IO;
    case ErrorCode::kOutOfMemory:
      return SEGUE_OUT_OF_MEMORY;
    case ErrorCode::kNonFinite:
      return SEGUE_NON_FINITE;
    case ErrorCode::kCancelled:
      return SEGUE_CANCELLED;
    case ErrorCode::kInternal:
      return SEGUE_INTERNAL;
  }
  return SEGUE_INTERNAL;
}

// A struct that grows does so behind its last field: padding there would hold an old caller's
// garbage.
template <typename Struct, typename Field>
constexpr bool EndsWith(size_t offset, Field Struct::*) {
  return offset + sizeof(Field) == sizeof(Struct);
}
static_assert(EndsWith(offsetof(segue_error, message), &segue_error::message));
static_assert(EndsWith(offsetof(segue_attention_options, element_type),
                       &segue_attention_options::element_type));
static_assert(EndsWith(offsetof(segue_attention_dense, o), &segue_attention_dense::o));
static_assert(EndsWith(offsetof(segue_attention_packed, max_seqlen_k),
                       &segue_attention_packed::max_seqlen_k));
static_assert(EndsWith(offsetof(segue_attention_trailing_padding, o),
                       &segue_attention_trailing_padding::o));
static_assert(EndsWith(offsetof(segue_attention_prefix_main, mask),
                       &segue_attention_prefix_main::mask));
static_assert(EndsWith(offsetof(segue_attention_row_indices, cu_seqlens),
                       &segue_attention_row_indices::cu_seqlens));
static_assert(EndsWith(offsetof(segue_attention_batch_view, query_rows),
                       &segue_attention_batch_view::query_rows));
static_assert(EndsWith(offsetof(segue_attention_plan_settings, gpu_multiprocessors),
                       &segue_attention_plan_settings::gpu_multiprocessors));
static_assert(EndsWith(offsetof(segue_attention_run, stream), &segue_attention_run::stream));
static_assert(EndsWith(offsetof(segue_attention_report, description),
                       &segue_attention_report::description));

}  // namespace

void CopyText(const std::string& text, char* to, size_t size) {
  if (size == 0) return;
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

segue_result Report(segue_error* error, segue_result result, const std::string& message) {
  if (error == nullptr || error->struct_size <= offsetof(segue_error, message)) return result;
  error->result = result;
  CopyText(message.empty() && result != SEGUE_OK ? segue_result_name(result) : message,
           error->message, error->struct_size - offsetof(segue_error, message));
  return result;
}

segue_result Report(segue_error* error, const Status& status) {
  if (status.ok()) return Report(error, SEGUE_OK, {});
  return Report(error, ResultOf(status.error().code), status.error().Message());
}

Result<attention::Options> ReadOptions(const char* function,
                                       const segue_attention_options* options) {
  SEGUE_ASSIGN_OR_RETURN(const segue_attention_options given, Read(function, "options", options));
  attention::Options result = {.q_heads = given.q_heads,
                               .kv_heads = given.kv_heads,
                               .head_dim = given.head_dim,
                               .softmax_scale = given.softmax_scale,
                               .causal = given.causal != 0};
  switch (given.element_type) {
    case SEGUE_FLOAT32:
      result.element_type = attention::ElementType::kFloat32;
      return result;
    case SEGUE_BFLOAT16:
      result.element_type = attention::ElementType::kBFloat16;
      return result;
    case SEGUE_FLOAT16:
      result.element_type = attention::ElementType::kFloat16;
      return result;
    default:
      return Invalid(function, "options.element_type", std::to_string(given.element_type),
                     "0 (float32), 1 (bfloat16) or 2 (float16)");
  }
}

}  // namespace segue::capi

int32_t segue_abi_version(void) { return SEGUE_ABI_VERSION; }

const char* segue_version(void) { return SEGUE_VERSION; }

const char* segue_result_name(segue_result result) {
  switch (result) {
    case SEGUE_OK:
      return "ok";
    case SEGUE_INVALID_ARGUMENT:
      return "invalid argument";
    case SEGUE_NOT_FOUND:
      return "not found";
    case SEGUE_CORRUPT:
      return "corrupt";
    case SEGUE_UNSUPPORTED:
      return "unsupported";
    case SEGUE_IO:
      return "input or output failed";
    case SEGUE_OUT_OF_MEMORY:
      return "out of memory";
    case SEGUE_NON_FINITE:
      return "not finite";
    case SEGUE_CANCELLED:
      return "cancelled";
    case SEGUE_INTERNAL:
      return "internal error";
    default:
      return "unknown";
  }
}
