// The picture decoder on a GPU.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: width, height (of the picture, multiples of 16). A decoder of Qwen-Image's sizes
// with random weights, captured. Verified: finite samples, the same bytes eager and captured. Peer:
// diffusers' decoder under --peer-python.
Result<std::vector<Row>> BenchGpuVae(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
