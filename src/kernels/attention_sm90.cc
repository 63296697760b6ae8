#include "kernels/attention_sm90.h"

namespace segue::kernels {
namespace {

// What the copy engine and 16-byte stores need of a tensor.
const char* RejectTensor(const void* data, int64_t row_stride, int64_t head_stride) {
  constexpr int64_t kMaxStride = int64_t{1} << 39;  // 2^40 bytes
  if (data == nullptr) return "a tensor with rows has a null pointer";
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return "a pointer is no multiple of 16 bytes";
  if (row_stride % 8 != 0) return "a row stride is no multiple of 16 bytes";
  if (head_stride % 8 != 0) return "a head stride is no multiple of 16 bytes";
  if (row_stride < 128 || head_stride < 128) return "a stride is below head_dim";
  if (row_stride >= kMaxStride || head_stride >= kMaxStride)
    return "a stride of 2^40 bytes or more";
  return nullptr;
}

const char* RejectSource(const AttentionSm90Source& source) {
  if (source.q_rows < 0 || source.kv_rows < 0) return "a source with a negative number of rows";
  const char* reason = nullptr;
  if (source.q_rows > 0) {
    reason = RejectTensor(source.q, source.q_row_stride, source.q_head_stride);
    if (reason == nullptr) {
      reason = RejectTensor(source.o, source.o_row_stride, source.o_head_stride);
    }
  }
  if (reason == nullptr && source.kv_rows > 0) {
    reason = RejectTensor(source.k, source.k_row_stride, source.k_head_stride);
    if (reason == nullptr) {
      reason = RejectTensor(source.v, source.v_row_stride, source.v_head_stride);
    }
  }
  return reason;
}

}  // namespace

const char* AttentionSm90Rejects(const AttentionSm90Params& params) {
  if (params.head_dim != 128) return "head_dim is not 128";
  if (const char* reason = AttentionCallRejects(params)) return reason;
  if (params.schedule == nullptr || params.counters == nullptr || params.ctas <= 0) {
    return "no schedule in device memory";
  }
  for (int32_t i = 0; i < params.source_count; ++i) {
    if (const char* reason = RejectSource(params.sources[i])) return reason;
  }
  return nullptr;
}

}  // namespace segue::kernels
