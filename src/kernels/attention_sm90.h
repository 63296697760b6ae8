// Forward attention on Hopper GPUs (compute capability 9.0) over segments in place.
//
// head_dim 128, bfloat16 or float16, causal (aligned bottom right) or not, grouped heads. The rows
// a call works on are those of a schedule in device memory (attention_schedule.h), so a captured
// launch follows new lengths. docs/kernels/attention_sm90.md derives the sizes.
#pragma once

#include "device/stream.h"
#include "kernels/attention_call.h"
#include "segue/status.h"

namespace segue::kernels {

// Tensors that segments lie in. Row r of head h begins at pointer + r * row_stride +
// h * head_stride elements. Pointers are multiples of 16 bytes, strides of 8 elements and at least
// 128; rows of outputs that segments use must not overlap. Where q_rows is 0, q and o may be null;
// where kv_rows is 0, k and v.
struct AttentionSm90Source {
  const void* q = nullptr;  // [q_rows, q_heads, 128]
  const void* k = nullptr;  // [kv_rows, kv_heads, 128]
  const void* v = nullptr;  // [kv_rows, kv_heads, 128]
  void* o = nullptr;        // [q_rows, q_heads, 128], written
  int64_t q_row_stride = 0;
  int64_t k_row_stride = 0;
  int64_t v_row_stride = 0;
  int64_t o_row_stride = 0;
  int32_t q_rows = 0;  // rows that exist; the schedule's segments stay below
  int32_t kv_rows = 0;
  int64_t q_head_stride = 128;
  int64_t k_head_stride = 128;
  int64_t v_head_stride = 128;
  int64_t o_head_stride = 128;
};

// `schedule` is made for these `ctas` too; head_dim is 128.
struct AttentionSm90Params : AttentionCall {
  AttentionSm90Source sources[kMaxSources];
  // Device memory, 2 values, zero before the first call; a call leaves them zero. Calls that may
  // run at the same time need counters of their own.
  int32_t* counters = nullptr;
  int32_t ctas = 0;  // AttentionSm90Ctas()
};

// Null when the kernel can run these parameters on a GPU that has it; otherwise the reason.
const char* AttentionSm90Rejects(const AttentionSm90Params& params);

// CTAs that fill the current device. Error (kUnsupported): no CUDA in this build, no device, or not
// compute capability 9.0.
Result<int32_t> AttentionSm90Ctas();

// Enqueues o = softmax(scale q k^T) v of every sequence in the schedule; a row that sees no key
// gives zeros. A sequence's bytes depend on its own lengths and rows alone. Errors: what
// AttentionSm90Rejects says; a launch that CUDA refuses.
Status AttentionSm90(const AttentionSm90Params& params, const Stream& stream);

}  // namespace segue::kernels
