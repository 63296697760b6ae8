// What planning and launching attention cost the host.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: sequences, heads, head_dim (128), longest (rows of a sequence, at most). Rows, in
// host time until the call returns: `-cached`, lengths that a plan has already and a call;
// `-new-lengths`, other lengths for every sequence, their plan made and its upload enqueued. The
// stream is empty before each.
Result<std::vector<Row>> BenchGpuHost(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
