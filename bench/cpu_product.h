// The packed product against OpenBLAS' sgemm.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: m, n, k, and weights ("BF16", "F16" or "F32"; BF16 if absent). One row, in GFLOP/s,
// 2 m n k operations a call. The peer multiplies the same weights, already widened to float32; the
// two results have to agree, or the case is an error.
Result<std::vector<Row>> BenchProduct(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
