// Attention on the GPU: our kernel on segments in place beside cuDNN.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: those of AttentionCase, and `reversed` and `refresh` (1: a row more of the sequences
// in reverse order, without a peer; of the kernel that refreshes the schedule). Rows: hot and
// burst, in TFLOP/s. The peer is the fastest of the forms in which cuDNN takes the case; ours and
// the peer are verified before they are timed.
Result<std::vector<Row>> BenchGpuAttention(const Case& one, const SuiteOptions& options);

// Case values: those of AttentionCase with text and image. Ours in place against the same kernel on
// one concatenated tensor; `ratio` is a cost, ours over that.
Result<std::vector<Row>> BenchGpuInPlace(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
