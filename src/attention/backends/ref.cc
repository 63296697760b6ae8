#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "attention/backends/backends.h"
#include "attention/plan_check.h"
#include "attention/rows_view.h"
#include "base/dtype.h"
#include "kernels/math.h"

namespace segue::attention {
namespace {

// A double as the float32 from which rounding once more, to a shorter type, gives what rounding the
// double itself would: cut off, with the last bit set when anything was lost (round to odd).
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || double{nearest} == value) return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(double{nearest}) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

double Load(ElementType type, const void* element) {
  if (type == ElementType::kFloat32) return *static_cast<const float*>(element);
  const uint16_t bits = *static_cast<const uint16_t*>(element);
  return type == ElementType::kBFloat16 ? BF16ToFloat(bits) : F16ToFloat(bits);
}

// Rounds once, to nearest even.
void Store(const Params& params, double value, void* element) {
  switch (params.options.element_type) {
    case ElementType::kFloat32:
      *static_cast<float*>(element) =
          kernels::Round<kernels::Scalar>(static_cast<float>(value), params.rounding);
      return;
    case ElementType::kBFloat16:
      *static_cast<uint16_t*>(element) = FloatToBF16(RoundToOdd(value));
      return;
    case ElementType::kFloat16:
      *static_cast<uint16_t*>(element) = FloatToF16(RoundToOdd(value));
      return;
  }
}

// One head of a sequence, through its segments in order.
struct Head {
  std::vector<const char*> q;  // each query row
  std::vector<char*> o;
  // Doubles, so that a sum over dimensions (keys) runs in their order for many keys (dimensions)
  // side by side.
  std::vector<double> k;  // [head_dim, keys]
  std::vector<double> v;  // [keys, head_dim]
  int64_t keys = 0;
};

char* RowOf(const Options& options, const RowsView& view, int64_t row, int64_t head) {
  return static_cast<char*>(RowsFrom(view, row, ElementBytes(options.element_type)).data) +
         head * HeadStride(view, options.head_dim) * ElementBytes(options.element_type);
}

Head Collect(const Options& options, const Sequence& sequence, int64_t index) {
  const int64_t kv_index = index / (options.q_heads / options.kv_heads);
  const int64_t dim = options.head_dim;
  const int64_t bytes = ElementBytes(options.element_type);
  Head head;
  for (const Segment& segment : sequence.segments) head.keys += segment.kv_rows;
  head.k.resize(dim * head.keys);
  head.v.resize(dim * head.keys);
  int64_t key = 0;
  for (const Segment& segment : sequence.segments) {
    for (int64_t row = 0; row < segment.q_rows; ++row) {
      head.q.push_back(RowOf(options, segment.q, row, index));
      head.o.push_back(RowOf(options, segment.o, row, index));
    }
    for (int64_t row = 0; row < segment.kv_rows; ++row, ++key) {
      const char* k = RowOf(options, segment.k, row, kv_index);
      const char* v = RowOf(options, segment.v, row, kv_index);
      for (int64_t i = 0; i < dim; ++i) {
        head.k[i * head.keys + key] = Load(options.element_type, k + i * bytes);
        head.v[key * dim + i] = Load(options.element_type, v + i * bytes);
      }
    }
  }
  return head;
}

// Writes one output row, which sees the first `keys` keys; returns its lse.
float AttendRow(const Params& params, const Head& head, int64_t row, int64_t keys) {
  const int64_t dim = params.options.head_dim;
  const int64_t bytes = ElementBytes(params.options.element_type);
  std::vector<double> weights(keys);
  for (int64_t i = 0; i < dim; ++i) {
    const double q = Load(params.options.element_type, head.q[row] + i * bytes);
    const double* k = head.k.data() + i * head.keys;
    for (int64_t key = 0; key < keys; ++key) weights[key] += q * k[key];
  }
  double largest = -std::numeric_limits<double>::infinity();
  for (double& weight : weights) {
    weight *= params.options.softmax_scale;
    largest = std::max(largest, weight);
  }
  double sum = 0.0;
  std::vector<double> mean(dim);
  for (int64_t key = 0; key < keys; ++key) {
    const double weight = std::exp(weights[key] - largest);
    sum += weight;
    const double* v = head.v.data() + key * dim;
    for (int64_t i = 0; i < dim; ++i) mean[i] += weight * v[i];
  }
  for (int64_t i = 0; i < dim; ++i) {
    Store(params, keys == 0 ? 0.0 : mean[i] / sum, head.o[row] + i * bytes);
  }
  return keys == 0 ? -std::numeric_limits<float>::infinity()
                   : static_cast<float>(largest + std::log(sum));
}

}  // namespace

const char* RejectsRef(const Params&, const kernels::Context& context) {
  if (context.stream.device() != DeviceKind::kCpu) return "works on host memory only";
  return nullptr;
}

Status RunRef(const Params& params, const kernels::Context& context) {
  const Options& options = params.options;
  std::vector<int64_t> offsets;  // query rows of earlier sequences
  int64_t total_rows = 0;
  for (const Sequence& sequence : params.sequences) {
    offsets.push_back(total_rows);
    for (const Segment& segment : sequence.segments) total_rows += segment.q_rows;
  }
  const auto attend = [&](int64_t task, int) {
    const int64_t sequence = task / options.q_heads;
    const int64_t index = task % options.q_heads;
    const Head head = Collect(options, params.sequences[sequence], index);
    const auto queries = static_cast<int64_t>(head.q.size());
    for (int64_t row = 0; row < queries; ++row) {
      int64_t seen = head.keys;
      if (options.causal) seen = std::clamp<int64_t>(seen - queries + 1 + row, 0, seen);
      const float lse = AttendRow(params, head, row, seen);
      if (params.lse != nullptr) params.lse[index * total_rows + offsets[sequence] + row] = lse;
    }
  };
  context.stream.pool().ForEach(static_cast<int64_t>(offsets.size()) * options.q_heads,
                                std::cref(attend));
  return {};
}

}  // namespace segue::attention
