// The packing kernels beside a copy of the same bytes.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: text, image (rows of the two tensors of one sequence), heads, head_dim (128). Rows:
// hot and burst, in GB/s of bytes read and written. The peer is the plain 16-byte copy of as many
// bytes, in graphs of the same kind; more than 300 MB of buffers rotate. Results are compared byte
// by byte before they are timed.
//
// Pack: Q, K and V out of the two fused projections into a packed tensor each, one launch.
Result<std::vector<Row>> BenchGpuPack(const Case& one, const SuiteOptions& options);
// Scatter: one packed tensor back to the two.
Result<std::vector<Row>> BenchGpuScatter(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
