// The CPU attention back end.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: text and image (rows of the two segments of one sequence), heads, head_dim. Queries,
// keys and values are slices of one fused projection a segment. One row, in GFLOP/s,
// 4 rows^2 heads head_dim operations a call. The peer is OpenBLAS computing Q K^T and (scores) V
// for blocks of 192 queries of one concatenated sequence, without any softmax: a bound for every
// attention built from library calls. The result has to agree with the reference back end on the
// first query rows, or the case is an error.
Result<std::vector<Row>> BenchAttention(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
