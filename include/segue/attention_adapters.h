// The forms in which callers hold a batch, turned into segments. Nothing is copied: every result
// points into the caller's tensors.
//
// Common to all: lengths are known to the host; tensors may have any row and head stride (a slice
// of a fused QKV output, a transposed [B, H, S, D] view), elements of a head lie side by side.
// Inputs may repeat memory (strides of 0), outputs may not overlap. Host only, pure, no more than
// n log n in the number of segments, rows of a mask or indices.
// Errors (kInvalidArgument) name the argument: options that contradict themselves, null pointers
// with rows, negative counts or strides, overlapping outputs, unsorted bounds, bounds past the
// tensors or short of them, more than 2^31 - 1 query rows.
#pragma once

#include <cstdint>
#include <span>

#include "segue/attention.h"
#include "segue/status.h"

namespace segue::attention {

// A [B, S, H, D] tensor: row s of sequence b of head h begins at
// data + b * batch_stride + s * row_stride + h * head_stride elements.
struct DenseView {
  RowsView rows;
  int64_t batch_stride = 0;  // elements
};

struct Dense {
  DenseView q, o;  // [batch, q_rows, q_heads, head_dim]
  DenseView k, v;  // [batch, kv_rows, kv_heads, head_dim]
  int32_t batch = 0;
  int32_t q_rows = 0;
  int32_t kv_rows = 0;
};
// One segment a sequence. One tensor set when the rows of all sequences can be numbered through:
// the batch strides of q and o are the same multiple of their row strides, those of k and v
// likewise. Else one a sequence.
Result<Batch> FromDense(const Dense& dense, const Options& options);

struct Packed {
  RowsView q, o;  // [total_q, q_heads, head_dim]
  RowsView k, v;  // [total_k, kv_heads, head_dim]
  int32_t total_q = 0;
  int32_t total_k = 0;
  std::span<const int32_t> cu_seqlens_q;  // [B + 1]: 0, ..., total_q, never falling
  std::span<const int32_t> cu_seqlens_k;  // [B + 1]: 0, ..., total_k, never falling
  // The longest sequences as the caller believes them, 0: not given. A smaller one than found is
  // an error; they are needed for nothing else, and without them no sequence sees another either.
  int32_t max_seqlen_q = 0;
  int32_t max_seqlen_k = 0;
};
// One tensor set, one segment a sequence. Errors besides: bounds that do not begin with 0 or end
// with the total; not as many for keys as for queries.
Result<Batch> FromPacked(const Packed& packed, const Options& options);

// Packed with one sequence of `used` rows at the front and `total - used` rows of padding behind:
// the layout (0, used, total). Said by the caller, never guessed from bounds. Output rows from
// `used` on come out zero (and their log-sum-exp -infinity). Always two sequences, the rows in use
// and the padding (queries without keys), either of which may be empty: one plan serves every
// `used`.
struct TrailingPadding {
  RowsView q, k, v, o;  // [total, heads, head_dim]
  int32_t used = 0;
  int32_t total = 0;
};
Result<Batch> FromTrailingPadding(const TrailingPadding& padded, const Options& options);

// Joint attention: sequence b is the first prefix_lengths[b] rows of prefix b, then all (or the
// first main_lengths[b]) rows of main b. Rows past those lengths are padding.
struct PrefixMain {
  Dense prefix;                             // [batch, prefix_rows, ...], q_rows == kv_rows
  Dense main;                               // [batch, main_rows, ...], q_rows == kv_rows
  std::span<const int32_t> prefix_lengths;  // [batch]
  std::span<const int32_t> main_lengths;    // [batch], or empty: main_rows each
  // Padding rows' outputs come out zero instead of staying unwritten, by `batch` further sequences
  // of queries without keys; their log-sum-exp (-infinity) comes behind that of the others.
  bool zero_padding = false;
};
// Two segments a sequence; the tensor sets of the prefix, then those of the main part, as FromDense
// makes them. Errors besides: parts of different `batch`, with other key than query rows; lengths
// that are negative, past their part or not one a sequence.
Result<Batch> FromPrefixMain(const PrefixMain& joint, const Options& options);

// The same with a key mask instead of lengths: `mask` [batch, prefix_rows + main_rows], nonzero
// where a row takes part, holes allowed; rows keep their order and each run of rows is a segment.
// Errors besides: a mask of another size; lengths beside it.
Result<Batch> FromKeyMask(const PrefixMain& joint, std::span<const uint8_t> mask,
                          const Options& options);

// Packed tensors of which each sequence uses the rows that `indices` names, in that order
// (ascending runs become segments). cu_seqlens bounds `indices`; the same rows serve Q, K, V and O;
// rows that are not named are neither read into any result nor written.
struct RowIndices {
  RowsView q, k, v, o;  // [total, heads, head_dim]
  int32_t total = 0;
  std::span<const int64_t> indices;     // each in [0, total), none twice
  std::span<const int32_t> cu_seqlens;  // [B + 1]: 0, ..., indices.size()
};
Result<Batch> FromRowIndices(const RowIndices& rows, const Options& options);

// Segments that bring their own pointers. Rows that follow one another in memory, or are the same,
// under the same strides (queries with their outputs, keys with their values) share a tensor set;
// no row outside the given segments is ever read. Errors besides: output rows of two segments.
Result<Batch> FromSequences(std::span<const Sequence> sequences, const Options& options);

// The reverse: every segment with pointers of its own. Precondition: a batch from an adapter.
std::vector<Sequence> ToSequences(const Batch& batch, const Options& options);

}  // namespace segue::attention
