// Attention over segments: the vocabulary of the product's heart, free of any framework.
//
// A batch is a list of sequences; a sequence is an ordered list of segments (text rows here, image
// rows there) that stay where they are. Every query row of a sequence attends to every key row of
// the same sequence and to nothing else. Segments are never copied together.
//
// Two spellings of the same batch: pointers (Sequence), where each segment brings its own, and
// tensors with rows (Batch), where pointers and lengths are apart, so that lengths may live in
// device memory and change under a captured graph (attention_plan.h). The forms callers have
// (dense, cu_seqlens, prefix and main, masks) become a Batch through attention_adapters.h.
#pragma once

#include <cstdint>
#include <vector>

#include "segue/segment_rows.h"

namespace segue::attention {

enum class ElementType : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Rows of one tensor: row r of head h begins at data + r * row_stride + h * head_stride elements.
struct RowsView {
  void* data = nullptr;
  int64_t row_stride = 0;   // elements
  int64_t head_stride = 0;  // elements; 0: head_dim, heads side by side in a row
};

// A piece of a sequence. It may have query rows and no key rows, or the reverse.
struct Segment {
  RowsView q;  // [q_rows, q_heads, head_dim]
  RowsView k;  // [kv_rows, kv_heads, head_dim]
  RowsView v;  // [kv_rows, kv_heads, head_dim]
  RowsView o;  // [q_rows, q_heads, head_dim], written
  int64_t q_rows = 0;
  int64_t kv_rows = 0;
};

struct Sequence {
  std::vector<Segment> segments;
};

struct Options {
  int32_t q_heads = 0;
  int32_t kv_heads =
      0;  // divides q_heads; query head h reads key/value head h / (q_heads/kv_heads)
  int32_t head_dim = 0;
  float softmax_scale = 0.0f;  // multiplies q.k; usually 1/sqrt(head_dim)
  // Row i of n query rows sees the first kv - n + 1 + i key rows (aligned bottom right), both
  // counted through the sequence's segments in order.
  bool causal = false;
  ElementType element_type = ElementType::kFloat32;
};

// Tensors that segments lie in. All rows of it may be read, whichever segments use them: rows that
// belong to no segment reach no output.
struct TensorSet {
  RowsView q;  // [q_rows, q_heads, head_dim]
  RowsView k;  // [kv_rows, kv_heads, head_dim]
  RowsView v;  // [kv_rows, kv_heads, head_dim]
  RowsView o;  // [q_rows, q_heads, head_dim]; rows of segments are written, no others
  int32_t q_rows = 0;
  int32_t kv_rows = 0;
};

// Sequences as rows of tensors.
struct Batch {
  std::vector<TensorSet> tensors;
  int32_t segments = 0;           // entries of `rows` that each sequence has, unused ones zero
  std::vector<SegmentRows> rows;  // [sequences, segments]

  int32_t sequences() const {
    return segments == 0 ? 0 : static_cast<int32_t>(rows.size()) / segments;
  }
};

}  // namespace segue::attention
