#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/backends/backends.h"
#include "kernels/math.h"

namespace segue::attention {
namespace {

// Pointers to every row of one head, through the segments in order.
struct HeadRows {
  std::vector<const float*> q, k, v;
  std::vector<float*> o;
};

float* RowOf(const RowsView& view, int64_t row, int64_t head, int64_t head_dim) {
  return static_cast<float*>(view.data) + row * view.row_stride + head * head_dim;
}

HeadRows Collect(const Options& options, const Sequence& sequence, int32_t head) {
  const int32_t kv_head = head / (options.q_heads / options.kv_heads);
  HeadRows rows;
  for (const Segment& segment : sequence.segments) {
    for (int64_t row = 0; row < segment.q_rows; ++row) {
      rows.q.push_back(RowOf(segment.q, row, head, options.head_dim));
      rows.o.push_back(RowOf(segment.o, row, head, options.head_dim));
    }
    for (int64_t row = 0; row < segment.kv_rows; ++row) {
      rows.k.push_back(RowOf(segment.k, row, kv_head, options.head_dim));
      rows.v.push_back(RowOf(segment.v, row, kv_head, options.head_dim));
    }
  }
  return rows;
}

// Writes one output row; returns its lse.
float AttendRow(const Params& params, const HeadRows& rows, int64_t row, int64_t keys) {
  const int32_t dim = params.options.head_dim;
  std::vector<double> weights(keys);
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t key = 0; key < keys; ++key) {
    double score = 0.0;
    for (int32_t i = 0; i < dim; ++i) score += double{rows.q[row][i]} * rows.k[key][i];
    weights[key] = score * params.options.softmax_scale;
    largest = std::max(largest, weights[key]);
  }
  double sum = 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  for (int32_t i = 0; i < dim; ++i) {
    double value = 0.0;
    for (int64_t key = 0; key < keys; ++key) value += weights[key] * rows.v[key][i];
    const auto mean = static_cast<float>(keys == 0 ? 0.0 : value / sum);
    rows.o[row][i] = kernels::Round<kernels::Scalar>(mean, params.rounding);
  }
  return keys == 0 ? -std::numeric_limits<float>::infinity()
                   : static_cast<float>(largest + std::log(sum));
}

}  // namespace

const char* RejectsRef(const Params& params, const kernels::Context& context) {
  if (context.stream.device() != DeviceKind::kCpu) return "works on host memory only";
  if (params.options.element_type != ElementType::kFloat32) return "float32 elements only";
  return nullptr;
}

Status RunRef(const Params& params, const kernels::Context&) {
  const Options& options = params.options;
  int64_t total_rows = 0;
  for (const Sequence& sequence : params.sequences) {
    for (const Segment& segment : sequence.segments) total_rows += segment.q_rows;
  }
  int64_t offset = 0;
  for (const Sequence& sequence : params.sequences) {
    int64_t rows_of_sequence = 0;
    for (int32_t head = 0; head < options.q_heads; ++head) {
      const HeadRows rows = Collect(options, sequence, head);
      const auto queries = static_cast<int64_t>(rows.q.size());
      const auto keys = static_cast<int64_t>(rows.k.size());
      for (int64_t row = 0; row < queries; ++row) {
        const int64_t seen = options.causal ? std::max<int64_t>(keys - queries + 1 + row, 0) : keys;
        const float lse = AttendRow(params, rows, row, seen);
        if (params.lse != nullptr) params.lse[head * total_rows + offset + row] = lse;
      }
      rows_of_sequence = queries;
    }
    offset += rows_of_sequence;
  }
  return {};
}

}  // namespace segue::attention
