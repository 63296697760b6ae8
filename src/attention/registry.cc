#include <cmath>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/backends/backends.h"

namespace segue::attention {
namespace {

constexpr char kOp[] = "attention";

// The fastest first, the reference last.
constexpr kernels::Kernel<Params> kBackends[] = {
    {"cpu", RejectsCpu, RunCpu},
    {"ref", RejectsRef, RunRef},
};

Error Invalid(std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = kOp,
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

Status CheckOptions(const Options& options) {
  if (options.q_heads <= 0) {
    return Invalid("q_heads", std::to_string(options.q_heads), "at least 1");
  }
  if (options.kv_heads <= 0 || options.q_heads % options.kv_heads != 0) {
    return Invalid("kv_heads", std::to_string(options.kv_heads),
                   "a divisor of " + std::to_string(options.q_heads) + " query heads");
  }
  if (options.head_dim <= 0) {
    return Invalid("head_dim", std::to_string(options.head_dim), "at least 1");
  }
  if (!std::isfinite(options.softmax_scale)) {
    return Invalid("softmax_scale", std::to_string(options.softmax_scale), "a finite number");
  }
  return {};
}

Status CheckRows(const std::string& where, const RowsView& view, int64_t rows, int64_t width) {
  if (rows < 0) return Invalid(where, std::to_string(rows) + " rows", "0 or more");
  if (rows == 0) return {};
  if (view.data == nullptr) return Invalid(where, "null", std::to_string(rows) + " rows");
  if (rows > 1 && view.row_stride < width) {
    return Invalid(where, "rows " + std::to_string(view.row_stride) + " elements apart",
                   "at least " + std::to_string(width));
  }
  return {};
}

Status CheckSegments(const Params& params) {
  const Options& options = params.options;
  const int64_t q_width = int64_t{options.q_heads} * options.head_dim;
  const int64_t kv_width = int64_t{options.kv_heads} * options.head_dim;
  for (const Sequence& sequence : params.sequences) {
    for (const Segment& segment : sequence.segments) {
      SEGUE_RETURN_IF_ERROR(CheckRows("q", segment.q, segment.q_rows, q_width));
      SEGUE_RETURN_IF_ERROR(CheckRows("o", segment.o, segment.q_rows, q_width));
      SEGUE_RETURN_IF_ERROR(CheckRows("k", segment.k, segment.kv_rows, kv_width));
      SEGUE_RETURN_IF_ERROR(CheckRows("v", segment.v, segment.kv_rows, kv_width));
    }
  }
  return {};
}

Status RunForced(const Params& params, const kernels::Context& context) {
  std::string names;
  for (const kernels::Kernel<Params>& backend : kBackends) {
    if (params.backend == backend.name) {
      return kernels::Dispatch<Params>(kOp, Span<const kernels::Kernel<Params>>(&backend, 1),
                                       params, context);
    }
    names += (names.empty() ? "" : ", ") + std::string(backend.name);
  }
  return Invalid("backend", params.backend, "one of " + names);
}

}  // namespace

Status Attention(const Params& params, const kernels::Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(params.options));
  SEGUE_RETURN_IF_ERROR(CheckSegments(params));
  if (!params.backend.empty()) return RunForced(params, context);
  return kernels::Dispatch<Params>(kOp, kBackends, params, context);
}

}  // namespace segue::attention
