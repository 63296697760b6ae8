// What every back end of a plan asks of settings and lengths: pure checks.
#pragma once

#include <cstdint>
#include <string>

#include "base/span.h"
#include "segue/attention_plan.h"

namespace segue::attention {

// An error (kInvalidArgument) of `operation`.
Error Invalid(const char* operation, std::string argument, std::string got, std::string wanted);

const char* ElementTypeName(ElementType type);
int64_t ElementBytes(ElementType type);

// Heads that divide, a head_dim, a finite scale.
Status CheckOptions(const char* operation, const Options& options);

// Everything but the names of back ends.
Status CheckSettings(const PlanSettings& settings);

// Lengths that may come from anywhere: counts within the capacity, segments inside their tensors,
// query rows within max_query_rows, at most 2^30 rows in a sequence.
Status CheckLengths(const PlanSettings& settings, Span<const SegmentRows> rows);

}  // namespace segue::attention
