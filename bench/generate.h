// From a prompt to a picture, beside diffusers' pipeline call.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: model, width, height, steps, guidance (a whole number); optional: prompt, and
// peer_dtype (float32, or bfloat16, which on some processors is faster; ours stays float32).
// Rows: the whole call, its three stages, loading, and the peak memory of a run beyond the mapped
// weights (rate in MiB). The peer is bench/diffusers_peer.py under SuiteOptions::peer_python;
// without it the peer's fields stay empty.
Result<std::vector<Row>> BenchGenerate(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
