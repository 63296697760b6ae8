#include <algorithm>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/backends/backends.h"
#include "attention/plan_check.h"
#include "attention/rows_view.h"

namespace segue::attention {
namespace {

constexpr char kOp[] = "attention";

bool Admits(const Params& params, std::string_view backend) {
  return params.admitted.empty() || std::find(params.admitted.begin(), params.admitted.end(),
                                              backend) != params.admitted.end();
}

constexpr char kNotAdmitted[] = "the model does not admit it";

// The fastest first, the reference last.
constexpr kernels::Kernel<Params> kBackends[] = {
    {"cpu",
     [](const Params& params, const kernels::Context& context) {
       return Admits(params, "cpu") ? RejectsCpu(params, context) : kNotAdmitted;
     },
     RunCpu},
    {"ref",
     [](const Params& params, const kernels::Context& context) {
       return Admits(params, "ref") ? RejectsRef(params, context) : kNotAdmitted;
     },
     RunRef, kernels::kReference},
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
  if (!Admits(params, params.backend)) {
    std::string admitted;
    for (const std::string_view name : params.admitted) {
      admitted.append(admitted.empty() ? "" : ", ").append(name);
    }
    return Invalid(kOp, "backend", params.backend, "one that the model admits: " + admitted);
  }
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

std::string ChosenBackend(const Params& params, const kernels::Context& context) {
  for (const kernels::Kernel<Params>& backend : kBackends) {
    if (!params.backend.empty() && params.backend != backend.name) continue;
    if (context.reference_only && !backend.reference) continue;
    if (backend.rejects(params, context) == nullptr) return backend.name;
  }
  return "";
}

}  // namespace segue::attention
