#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/backends/backends.h"
#include "attention/plan_check.h"

namespace segue::attention {
namespace {

constexpr char kOp[] = "attention";

// The fastest first, the reference last.
constexpr kernels::Kernel<Params> kBackends[] = {
    {"cpu", RejectsCpu, RunCpu},
    {"ref", RejectsRef, RunRef},
};

Status CheckRows(const std::string& where, const RowsView& view, int64_t rows, int64_t width) {
  if (rows < 0) return Invalid(kOp, where, std::to_string(rows) + " rows", "0 or more");
  if (rows == 0) return {};
  if (view.data == nullptr) return Invalid(kOp, where, "null", std::to_string(rows) + " rows");
  if (rows > 1 && view.row_stride < width) {
    return Invalid(kOp, where, "rows " + std::to_string(view.row_stride) + " elements apart",
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
  return Invalid(kOp, "backend", params.backend, "one of " + names);
}

}  // namespace

Status Attention(const Params& params, const kernels::Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kOp, params.options));
  SEGUE_RETURN_IF_ERROR(CheckSegments(params));
  if (!params.backend.empty()) return RunForced(params, context);
  return kernels::Dispatch<Params>(kOp, kBackends, params, context);
}

}  // namespace segue::attention
