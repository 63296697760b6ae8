// Row and elementwise kernels beside a copy of the same bytes.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: op (modulated_norm, norm, heads, gelu, silu_mul; of the picture decoder
// channel_norm, channel_sum_norm, which adds first, and upsample, of a square map), text and image
// (rows of the two streams, or pixels), width of a row, or heads and head_dim, and rounding (bf16,
// the default, or none). Rows: hot and burst, in GB/s of bytes read and written. The peer is the
// plain 16-byte copy of as many bytes, in graphs of the same kind; more than 300 MB of buffers
// rotate. The plain kernels' bytes are required before anything is timed.
Result<std::vector<Row>> BenchGpuRows(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
