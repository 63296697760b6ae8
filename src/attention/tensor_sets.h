// The tensor sets of a planned call.
#pragma once

#include "base/span.h"
#include "segue/attention_plan.h"

namespace segue::attention {

// Checks the sets' number, their rows, pointers and strides against the settings and fills in head
// strides of 0. Inputs may repeat memory; rows and heads of an output may only interleave, which is
// as much as can be said without the segments.
Status CompleteTensors(const PlanSettings& settings, Span<TensorSet> tensors);

}  // namespace segue::attention
