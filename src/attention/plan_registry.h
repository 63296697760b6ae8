// The choice of a back end for a plan.
#pragma once

#include <string>
#include <vector>

#include "attention/backends/plan_backend.h"
#include "base/span.h"

namespace segue::attention {

struct PlanChoice {
  const PlanBackend* backend = nullptr;
  std::vector<BackendChoice> choices;
};

// Checks names; asks the back ends in order. `no_gpu` says why there is no GPU to plan for; empty:
// there is one, or none is needed. Errors: those of Plan::Create about back ends.
Result<PlanChoice> ChooseBackend(const PlanSettings& settings, const std::string& no_gpu);

// Null when `name` may be chosen explicitly, else what to want instead: "one of sm90, cpu".
// Empty `admitted` admits all.
std::string NotAdmitted(const std::string& name, Span<const std::string> admitted);

}  // namespace segue::attention
