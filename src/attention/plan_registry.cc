#include "attention/plan_registry.h"

#include <algorithm>

#include "attention/backends/plan_backend.h"
#include "attention/plan_check.h"

namespace segue::attention {
namespace {

constexpr char kOp[] = "choose an attention back end";

// The fastest first, the reference last.
constexpr const PlanBackend* kBackends[] = {
    &kSm90PlanBackend, &kCudnnPlanBackend, &kCudaPlanBackend, &kCpuPlanBackend, &kRefPlanBackend,
};

std::string Names() {
  std::string names;
  for (const PlanBackend* backend : kBackends) {
    names += (names.empty() ? "" : ", ") + std::string(backend->name);
  }
  return names;
}

bool Exists(const std::string& name) {
  return std::any_of(std::begin(kBackends), std::end(kBackends),
                     [&name](const PlanBackend* backend) { return name == backend->name; });
}

// What speaks against a back end without asking it; empty: nothing.
std::string PlainReason(const PlanBackend& backend, const PlanSettings& settings) {
  if (!NotAdmitted(backend.name, settings.admitted).empty()) return "the model does not admit it";
  if (backend.place != settings.place) {
    return backend.place == Place::kCpu ? "works on host memory only"
                                        : "works on device memory only";
  }
  return "";
}

}  // namespace

std::string NotAdmitted(const std::string& name, Span<const std::string> admitted) {
  if (admitted.empty()) return "";
  std::string names;
  for (const std::string& one : admitted) {
    if (one == name) return "";
    names += (names.empty() ? "" : ", ") + one;
  }
  return "one that the model admits: " + names;
}

Result<PlanChoice> ChooseBackend(const PlanSettings& settings, const std::string& no_gpu) {
  const std::string& forced = settings.backend;
  if (!forced.empty() && !Exists(forced))
    return Invalid(kOp, "backend", forced, "one of " + Names());
  for (const std::string& name : settings.admitted) {
    if (!Exists(name)) return Invalid(kOp, "admitted", name, "one of " + Names());
  }
  if (!forced.empty()) {
    const std::string wanted = NotAdmitted(forced, settings.admitted);
    if (!wanted.empty()) return Invalid(kOp, "backend", forced, wanted);
  }
  PlanChoice result;
  std::string reasons;
  for (const PlanBackend* backend : kBackends) {
    std::string reason = PlainReason(*backend, settings);
    if (!forced.empty() && forced != backend->name) {
      reason = forced + " was asked for";
    } else if (result.backend != nullptr) {
      if (reason.empty()) reason = std::string(result.backend->name) + " comes first";
    } else {
      if (reason.empty()) reason = no_gpu.empty() ? backend->rejects(settings) : no_gpu;
      if (reason.empty()) {
        result.backend = backend;
      } else {
        reasons += (reasons.empty() ? "" : "; ") + std::string(backend->name) + ": " + reason;
      }
    }
    result.choices.push_back({backend->name, std::move(reason)});
  }
  if (result.backend != nullptr) return result;
  return Error{.code = ErrorCode::kUnsupported,
               .operation = kOp,
               .argument = forced,
               .got = reasons,
               .wanted = "settings that a back end accepts"};
}

}  // namespace segue::attention
