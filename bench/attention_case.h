// Cases of the GPU attention suite: which sequences, of which segments, in which tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/suite.h"
#include "segue/segment_rows.h"

namespace segue::bench {

// Case values:
//   heads, kv_heads (heads if absent), head_dim (128), causal (0)
//   text, image    one sequence of two segments in two tensors; `slot`: rows that the text's tensor
//                  has, at least `text`
//   lengths        or: sequences of one segment, one after the other in one tensor: 4160,2x512 is
//                  4160, 512, 512; or count, base, step, modulus: length i is base + step i mod
//                  modulus
//   tail           with lengths: query rows behind them that see no key and come out zero
struct AttentionCase {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  bool causal = false;
  std::vector<int32_t> tensor_rows;
  int32_t segments = 0;                      // of a sequence
  std::vector<attention::SegmentRows> rows;  // [sequences, segments]
  int32_t tail = 0;

  int32_t sequences() const { return static_cast<int32_t>(rows.size()) / segments; }
  int64_t QueryRows(int32_t sequence) const;
  int64_t KeyRows(int32_t sequence) const;
  int64_t TotalQueryRows() const;
  // 4 head_dim operations for each query head, row and key that the row sees.
  double Operations() const;
};

// Errors name the value: absent, not a number, out of range.
Result<AttentionCase> ReadAttentionCase(const Case& one);

// The same sequences in reverse order.
AttentionCase Reversed(const AttentionCase& original);
// The same rows, every sequence one segment of one tensor.
AttentionCase Concatenated(const AttentionCase& original);

}  // namespace segue::bench
