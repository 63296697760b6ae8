// Segue's C API: attention over segments, for callers in C and for any language that calls C.
// docs/c_api.md explains it with examples; libsegue.so exports it.
//
// Versions. A struct that begins with `struct_size` may grow at its end: set it to sizeof and every
// field that has no use to 0. Callers and libraries of different age work together as long as what
// only one of them knows stays 0. Structs without `struct_size` never change.
//
// Errors. Functions that can fail return a segue_result and say more in `error`, which may be NULL.
// Nothing is printed, no exception leaves the library, and a call that fails leaves NULL where a
// handle was due and everything else as it was.
//
// Threads. Any function may be called from any thread. A plan serves one call at a time; a batch
// that is not being destroyed serves any number. Plans are independent of one another, but runs of
// one plan share its workspace: on the GPU they need one stream, or streams that wait for each
// other.
#ifndef SEGUE_SEGUE_H_
#define SEGUE_SEGUE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SEGUE_API __attribute__((visibility("default")))
#else
#define SEGUE_API
#endif

// Names are C's: lower case, with the library's prefix.
// NOLINTBEGIN(readability-identifier-naming)

#ifdef __cplusplus
extern "C" {
#endif

// Of the functions and structs below; libraries of one ABI version only gain more of them.
#define SEGUE_ABI_VERSION 1

// The library's own, to compare with the header's, and its release, "0.1.0".
SEGUE_API int32_t segue_abi_version(void);
SEGUE_API const char* segue_version(void);

typedef int32_t segue_result;
enum {
  SEGUE_OK = 0,
  SEGUE_INVALID_ARGUMENT = 1,  // the caller asked for something that cannot be
  SEGUE_NOT_FOUND = 2,         // a file, a tensor, a key is missing
  SEGUE_CORRUPT = 3,           // a file's contents contradict themselves or its format
  SEGUE_UNSUPPORTED = 4,       // well-formed, but this build or GPU does not do it
  SEGUE_IO = 5,                // the operating system refused a read or a write
  SEGUE_OUT_OF_MEMORY = 6,
  SEGUE_NON_FINITE = 7,  // NaN or infinity where a number was due
  SEGUE_CANCELLED = 8,   // stopped on request
  SEGUE_INTERNAL = 9     // a broken invariant of the library itself, or a failure of CUDA
};

// "ok", "invalid argument", ...; "unknown" for any other number.
SEGUE_API const char* segue_result_name(segue_result result);

// Where a failed call says what it was doing, to which argument, what it got and what it wanted.
typedef struct segue_error {
  uint32_t struct_size;
  segue_result result;
  char message[2040];  // terminated; cut off if longer
} segue_error;

// Attention
// ----------------------------------------------------------------------------------------
//
// A batch is a list of sequences; a sequence is an ordered list of segments, rows of tensors that
// stay where they are. Every query row of a sequence sees every key row of the same sequence (all,
// or causally aligned bottom right) and nothing else. A row that sees no key gives zeros.

enum { SEGUE_FLOAT32 = 0, SEGUE_BFLOAT16 = 1, SEGUE_FLOAT16 = 2 };  // element_type
enum { SEGUE_CPU = 0, SEGUE_CUDA = 1 };                             // place

typedef struct segue_attention_options {
  uint32_t struct_size;
  int32_t q_heads;
  int32_t kv_heads;  // divides q_heads; query head h reads key/value head h / (q_heads / kv_heads)
  int32_t head_dim;
  float softmax_scale;  // multiplies q.k; usually 1/sqrt(head_dim)
  int32_t causal;       // 0 or 1: query row i of n sees the first (keys - n + 1 + i) keys
  int32_t element_type;
} segue_attention_options;

// Rows of one tensor: row r of head h begins at data + r * row_stride + h * head_stride elements.
typedef struct segue_rows_view {
  void* data;
  int64_t row_stride;   // elements
  int64_t head_stride;  // elements; 0: head_dim, heads side by side in a row
} segue_rows_view;

// Tensors that segments lie in. q and o [q_rows, q_heads, head_dim], k and v [kv_rows, kv_heads,
// head_dim]. Rows of segments are written, no others.
typedef struct segue_tensor_set {
  segue_rows_view q, k, v, o;
  int32_t q_rows;
  int32_t kv_rows;
} segue_tensor_set;

typedef struct segue_tensor_rows {
  int32_t q_rows;
  int32_t kv_rows;
} segue_tensor_rows;

// A segment: rows of tensor set `source`. All zeros: no segment.
typedef struct segue_segment_rows {
  int32_t source;
  int32_t q_begin;
  int32_t q_rows;
  int32_t kv_begin;
  int32_t kv_rows;
} segue_segment_rows;

// Batches: the forms callers have, as tensor sets and segments
// -------------------------------------
//
// A batch points into the caller's tensors and copies nothing; lengths and bounds are read during
// the call only, from host memory. Host only: no CUDA call is made.

typedef struct segue_attention_batch segue_attention_batch;

// A [batch, rows, heads, head_dim] tensor: sequence b begins at data + b * batch_stride elements.
typedef struct segue_dense_view {
  segue_rows_view rows;
  int64_t batch_stride;
} segue_dense_view;

typedef struct segue_attention_dense {
  uint32_t struct_size;
  int32_t batch;
  int32_t q_rows;
  int32_t kv_rows;
  segue_dense_view q, k, v, o;
} segue_attention_dense;
SEGUE_API segue_result segue_attention_batch_from_dense(const segue_attention_dense* form,
                                                        const segue_attention_options* options,
                                                        segue_attention_batch** batch,
                                                        segue_error* error);

// Sequence b is query rows [cu_seqlens_q[b], cu_seqlens_q[b + 1]), and key rows likewise.
typedef struct segue_attention_packed {
  uint32_t struct_size;
  int32_t sequences;
  segue_rows_view q, k, v, o;
  int32_t total_q;              // rows of q and o
  int32_t total_k;              // rows of k and v
  const int32_t* cu_seqlens_q;  // [sequences + 1]: 0, ..., total_q, never falling
  const int32_t* cu_seqlens_k;  // [sequences + 1]: 0, ..., total_k, never falling
  int32_t max_seqlen_q;         // checked when not 0, needed for nothing
  int32_t max_seqlen_k;
} segue_attention_packed;
SEGUE_API segue_result segue_attention_batch_from_packed(const segue_attention_packed* form,
                                                         const segue_attention_options* options,
                                                         segue_attention_batch** batch,
                                                         segue_error* error);

// One sequence of `used` rows, then padding up to `total`, whose outputs come out zero. Two
// sequences, the second one the padding.
typedef struct segue_attention_trailing_padding {
  uint32_t struct_size;
  int32_t used;
  int32_t total;
  segue_rows_view q, k, v, o;  // [total, heads, head_dim]
} segue_attention_trailing_padding;
SEGUE_API segue_result segue_attention_batch_from_trailing_padding(
    const segue_attention_trailing_padding* form, const segue_attention_options* options,
    segue_attention_batch** batch, segue_error* error);

// Joint attention: sequence b is the first prefix_lengths[b] rows of prefix b, then the first
// main_lengths[b] rows of main b; or the rows of both that `mask` marks.
typedef struct segue_attention_prefix_main {
  uint32_t struct_size;
  int32_t batch;
  int32_t prefix_rows;
  int32_t main_rows;
  // 1: outputs of the other rows come out zero, by `batch` more sequences that have no keys.
  // 0: they stay unwritten.
  int32_t zero_padding;
  segue_dense_view prefix_q, prefix_k, prefix_v, prefix_o;
  segue_dense_view main_q, main_k, main_v, main_o;
  const int32_t* prefix_lengths;  // [batch]; NULL: prefix_rows each
  const int32_t* main_lengths;    // [batch]; NULL: main_rows each
  const uint8_t* mask;            // [batch, prefix_rows + main_rows] instead of lengths, or NULL
} segue_attention_prefix_main;
SEGUE_API segue_result segue_attention_batch_from_prefix_main(
    const segue_attention_prefix_main* form, const segue_attention_options* options,
    segue_attention_batch** batch, segue_error* error);

// Sequence b is the rows indices[cu_seqlens[b]], ..., in that order.
typedef struct segue_attention_row_indices {
  uint32_t struct_size;
  int32_t sequences;
  segue_rows_view q, k, v, o;  // [total, heads, head_dim]
  int32_t total;
  const int64_t* indices;     // [cu_seqlens[sequences]], none twice
  const int32_t* cu_seqlens;  // [sequences + 1]: 0, ..., never falling
} segue_attention_row_indices;
SEGUE_API segue_result segue_attention_batch_from_row_indices(
    const segue_attention_row_indices* form, const segue_attention_options* options,
    segue_attention_batch** batch, segue_error* error);

// What a batch consists of. Pointers stay valid until it is destroyed.
typedef struct segue_attention_batch_view {
  uint32_t struct_size;
  int32_t sequences;
  int32_t segments;  // entries that each sequence has in `rows`, unused ones zero
  int32_t tensor_count;
  const segue_tensor_set* tensors;
  const segue_segment_rows* rows;  // [sequences, segments]
  int64_t query_rows;              // of all sequences together
} segue_attention_batch_view;
SEGUE_API segue_result segue_attention_batch_describe(const segue_attention_batch* batch,
                                                      segue_attention_batch_view* view,
                                                      segue_error* error);

// The batch's rows for plans with more segments a sequence: writes [sequences, max_segments]
// entries, for instance to pinned memory on their way to segue_attention_plan_refresh.
// `capacity`: entries that `rows` holds.
SEGUE_API segue_result segue_attention_batch_rows(const segue_attention_batch* batch,
                                                  int32_t max_segments, segue_segment_rows* rows,
                                                  size_t capacity, segue_error* error);

// NULL is allowed.
SEGUE_API void segue_attention_batch_destroy(segue_attention_batch* batch);

// Plans
// --------------------------------------------------------------------------------------------
//
// A plan fixes heads, capacities and the back end; lengths come later and change as often as one
// likes, from the host (set_lengths, set_batch) or out of device memory (refresh, which may be
// captured). run, once a layer, uses those set last. `stream` is a cudaStream_t, NULL the default
// stream; ignored on SEGUE_CPU, where calls return when done. On SEGUE_CUDA calls enqueue and do
// not wait (but read_report).

typedef struct segue_attention_plan segue_attention_plan;

typedef struct segue_attention_plan_settings {
  uint32_t struct_size;
  int32_t place;
  int32_t device_lengths;  // 1: lengths will come through refresh
  int32_t wants_lse;       // 1: runs may ask for the log-sum-exp
  int32_t threads;         // SEGUE_CPU: to run on, the caller's among them; 0: one per core
  // Capacities. Those left 0 (NULL) are those of `batch`; without a batch they must be given, but
  // for max_query_rows, which is then the tensors' sum.
  int32_t max_sequences;
  int32_t max_segments;  // of one sequence
  int32_t tensor_count;
  int32_t admitted_count;
  const segue_tensor_rows* tensors;  // rows of each tensor set
  int64_t max_query_rows;            // of all sequences together
  const segue_attention_batch* batch;
  const segue_attention_options* options;
  const char* backend;          // "sm90", "cudnn", "cuda", "cpu", "ref"; NULL: first that accepts
  const char* const* admitted;  // back ends that the model admits; NULL: all
  // SEGUE_CUDA: the GPU to plan for, 90 and 132 on an H200; 0: the calling thread's current one.
  int32_t gpu_compute_capability;
  int32_t gpu_multiprocessors;
} segue_attention_plan_settings;

SEGUE_API segue_result segue_attention_plan_create(const segue_attention_plan_settings* settings,
                                                   segue_attention_plan** plan, segue_error* error);
// NULL is allowed. Work already enqueued goes on; the workspace has to outlive it.
SEGUE_API void segue_attention_plan_destroy(segue_attention_plan* plan);

// The back end's name; valid until the plan is destroyed. NULL for a NULL plan.
SEGUE_API const char* segue_attention_plan_backend(const segue_attention_plan* plan);
// Bytes of workspace, aligned to 256, in the memory of `place`; 0 is possible. -1 for a NULL plan.
SEGUE_API int64_t segue_attention_plan_workspace_bytes(const segue_attention_plan* plan);
// Rows that a log-sum-exp output needs for each head. -1 for a NULL plan.
SEGUE_API int64_t segue_attention_plan_max_query_rows(const segue_attention_plan* plan);
// For people: settings, the choice of the back end with the reasons against the others, lengths and
// tiles. Like snprintf: writes at most `size` bytes, terminated, and returns the text's length; 0
// for a NULL plan.
SEGUE_API size_t segue_attention_plan_describe(const segue_attention_plan* plan, char* text,
                                               size_t size);

// Once for each workspace, before its first use. Not while the stream is being captured.
SEGUE_API segue_result segue_attention_plan_prepare(segue_attention_plan* plan, void* workspace,
                                                    void* stream, segue_error* error);

// Lengths from host memory, `rows` [sequences, max_segments], which may be freed at once. Not while
// the stream is being captured.
SEGUE_API segue_result segue_attention_plan_set_lengths(segue_attention_plan* plan,
                                                        const segue_segment_rows* rows,
                                                        int32_t sequences, void* workspace,
                                                        void* stream, segue_error* error);
// The same with a batch's lengths, of as many or fewer segments a sequence than the plan's.
SEGUE_API segue_result segue_attention_plan_set_batch(segue_attention_plan* plan,
                                                      const segue_attention_batch* batch,
                                                      void* workspace, void* stream,
                                                      segue_error* error);
// Lengths out of the memory of `place`: `rows` as above and one count of sequences, both read when
// the stream gets there (on SEGUE_CPU at each run), so both have to live until then. Mistakes are
// for read_report to tell; such a batch is not computed.
SEGUE_API segue_result segue_attention_plan_refresh(segue_attention_plan* plan,
                                                    const segue_segment_rows* rows,
                                                    const int32_t* sequences, void* workspace,
                                                    void* stream, segue_error* error);

typedef struct segue_attention_run {
  uint32_t struct_size;
  int32_t tensor_count;
  const segue_tensor_set* tensors;     // as many and as large as planned
  const segue_attention_batch* batch;  // its tensors, where `tensors` is NULL
  float* lse;  // [q_heads, lse_stride] float32, natural logarithm, in the memory of `place`;
               // or NULL. Rows in the order of sequences and segments
  int64_t lse_stride;  // at least max_query_rows
  void* workspace;
  void* stream;
} segue_attention_run;

// o = softmax(softmax_scale q k^T) v of the lengths set last.
SEGUE_API segue_result segue_attention_plan_run(const segue_attention_plan* plan,
                                                const segue_attention_run* run, segue_error* error);

// What was found wrong with lengths that came out of device memory.
typedef struct segue_attention_report {
  uint32_t struct_size;
  int32_t error;          // 0: nothing
  int32_t sequence;       // the first one concerned
  char description[500];  // terminated; empty: nothing
} segue_attention_report;

// Waits for the stream.
SEGUE_API segue_result segue_attention_plan_read_report(const segue_attention_plan* plan,
                                                        void* workspace, void* stream,
                                                        segue_attention_report* report,
                                                        segue_error* error);

#ifdef __cplusplus
}
#endif

// NOLINTEND(readability-identifier-naming)

#endif  // SEGUE_SEGUE_H_
