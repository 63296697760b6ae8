// A forward, or a whole denoising step, of Qwen-Image's transformer on a GPU.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: width, height (of the picture), text (rows of each prompt), requests, guided (0 or
// 1), part ("forward" or "step": guidance and the Euler step too), layers (60 in the model; its
// time grows with them). Random weights of the model's sizes, captured as the engine captures it.
//
// Verified: the recorded bytes are those of the plain reference kernels, run eagerly, and finite.
// Peer: with more than one request, each of them alone, one after the other; else none.
Result<std::vector<Row>> BenchGpuDit(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
