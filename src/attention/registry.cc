#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/backends/backends.h"
#include "attention/plan_check.h"
#include "attention/rows_view.h"

namespace segue::attention {
namespace {

constexpr char kOp[] = "attention";

// The fastest first, the reference last.
constexpr kernels::Kernel<Params> kBackends[] = {
    {"cpu", RejectsCpu, RunCpu},
    {"ref", RejectsRef, RunRef},
};

Status CheckSegments(const Params& params) {
  const Options& options = params.options;
  const auto shape = [&options](const char* name, int64_t rows, int32_t heads) {
    return ViewShape{.name = name, .rows = rows, .heads = heads, .head_dim = options.head_dim};
  };
  for (const Sequence& sequence : params.sequences) {
    for (const Segment& segment : sequence.segments) {
      SEGUE_RETURN_IF_ERROR(
          CheckInput(kOp, shape("q", segment.q_rows, options.q_heads), segment.q));
      SEGUE_RETURN_IF_ERROR(
          CheckOutput(kOp, shape("o", segment.q_rows, options.q_heads), segment.o));
      SEGUE_RETURN_IF_ERROR(
          CheckInput(kOp, shape("k", segment.kv_rows, options.kv_heads), segment.k));
      SEGUE_RETURN_IF_ERROR(
          CheckInput(kOp, shape("v", segment.kv_rows, options.kv_heads), segment.v));
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
