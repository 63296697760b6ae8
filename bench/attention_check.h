// Whether outputs in device memory are those of attention: sampled rows against float64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue::bench {

// A segment in device memory, bfloat16. Row r of head h is at pointer + r * row_stride + h *
// head_dim elements.
struct CheckedSegment {
  const uint16_t* q = nullptr;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  const uint16_t* o = nullptr;
  int64_t q_row_stride = 0;
  int64_t kv_row_stride = 0;
  int64_t o_row_stride = 0;
  int64_t q_rows = 0;
  int64_t kv_rows = 0;
};
using CheckedSequence = std::vector<CheckedSegment>;

struct CheckOptions {
  std::string name;  // of what is checked, for the message
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  float softmax_scale = 0.0f;
  bool causal = false;
  int threads = 1;
};

// Head vectors of one sequence on the host, keys of all segments one after the other.
struct HostHead {
  std::vector<float> keys;    // [kv_rows, head_dim]
  std::vector<float> values;  // [kv_rows, head_dim]
};

// One query row's exact result and that of a plain kernel, which keeps scores and sums in float32,
// rounds the weights to bfloat16 for the second product and rounds the output.
struct RowReference {
  std::vector<double> exact;  // [head_dim]; zeros where no key is seen
  std::vector<double> plain;
};
RowReference ReferenceRow(const float* query, const HostHead& head, int64_t visible_keys,
                          int32_t head_dim, float softmax_scale);

// Checks some rows of some heads of some sequences, the first and last row of every segment of
// those among them. Error (kInternal): root mean square or largest error above twice the plain
// kernel's.
Status CheckAttention(const std::vector<CheckedSequence>& sequences, const CheckOptions& options);

}  // namespace segue::bench
