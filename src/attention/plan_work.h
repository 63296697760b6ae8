// What people want to know of a list of work: pure arithmetic.
#pragma once

#include <string>

#include "base/span.h"
#include "segue/attention_plan.h"

namespace segue::attention {

// Fills in the loads of list.workers from its tiles and their order.
void AssignWork(WorkList& list);

// "4 sequences of 4160 query and 4160 key rows: 792 tiles ..."; one line.
std::string Describe(const WorkList& list);

// Settings, capacities and choices, a line each.
std::string Describe(const PlanSettings& settings, Span<const BackendChoice> choices);

}  // namespace segue::attention
