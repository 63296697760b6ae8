// Forward attention on the GPU for what attention_sm90.h and the library do not serve: any
// head_dim that is a multiple of 8 up to 256, any strides, lengths in device memory.
//
// bfloat16 or float16, causal (aligned bottom right) or not, grouped heads, segments in place. The
// rows a call works on are those of a schedule in device memory (attention_schedule.h), so a
// captured launch follows new lengths. Written for the instructions of compute capability 8.0;
// docs/kernels/attention_cuda.md says how it works and which GPUs builds have code for.
#pragma once

#include "device/stream.h"
#include "kernels/attention_call.h"
#include "segue/status.h"

namespace segue::kernels {

// head_dim is a multiple of 8 up to 256.
struct AttentionCudaParams : AttentionCall {
  // Head strides are filled in. Where q_rows is 0, q and o may be null; where kv_rows is 0, k and
  // v. Rows of outputs that segments use must not overlap.
  attention::TensorSet sources[kMaxSources];
  int32_t multiprocessors = 0;  // of the GPU; decides how many CTAs share the work, no byte
};

// How the kernel cuts its work, by head_dim. An entry of the schedule is two tiles of query rows.
struct AttentionCudaTiling {
  int32_t query_rows = 64;  // of a CTA: 16, the rows of an mma, for each of four warps
  int32_t columns = 0;      // head_dim rounded up to what there is code for
  int32_t key_rows = 0;     // of a tile of keys
  int32_t ctas_a_multiprocessor = 0;
};
// Two stages of K and V, and the queries, take 27, 47 or 87 KiB with 64 keys; with 32 keys of 256
// columns 100. So four, four, two and two CTAs fit into the 227 KiB of an H200's multiprocessor,
// and a thread's accumulators, (columns + keys) / 2 registers, into its 128 or 255.
constexpr AttentionCudaTiling AttentionCudaTilingOf(int32_t head_dim) {
  if (head_dim <= 32) return {.columns = 32, .key_rows = 64, .ctas_a_multiprocessor = 4};
  if (head_dim <= 64) return {.columns = 64, .key_rows = 64, .ctas_a_multiprocessor = 4};
  if (head_dim <= 128) return {.columns = 128, .key_rows = 64, .ctas_a_multiprocessor = 2};
  return {.columns = 256, .key_rows = 32, .ctas_a_multiprocessor = 2};
}
// CTAs that share the work; each takes every so many-th tile of query rows.
int32_t AttentionCudaCtas(const AttentionCudaParams& params);

// Null when the kernel can run these parameters on a GPU that it has code for; else the reason.
const char* AttentionCudaRejects(const AttentionCudaParams& params);

// Enqueues o = softmax(scale q k^T) v of every sequence in the schedule; a row that sees no key
// gives zeros. A sequence's bytes depend on its own lengths and rows alone. Errors: what
// AttentionCudaRejects says; a launch that CUDA refuses; a build without CUDA.
Status AttentionCuda(const AttentionCudaParams& params, const Stream& stream);

}  // namespace segue::kernels
