// Qwen-Image's text encoder on a GPU.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: tokens (of the one prompt), layers (28 in the model), peer_mode (of
// bench/gpu_peer.py: "eager", as the pipeline of the reference runs it, or "default", compiled and
// recorded). Random weights of the model's sizes, enqueued launch by launch as the engine does it.
//
// Verified: the bytes of the plain reference kernels, all finite. Peer: transformers under
// --peer-python. The rate counts the bytes of the layers' weights, which a short prompt waits for.
Result<std::vector<Row>> BenchGpuText(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
