// Whole pictures from the engine on a GPU.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: width, height, steps, guidance (whole numbers), pictures (that are timed); model, a
// directory: with its own weights, or, where `tokenizer` names another model's tokenizer directory,
// with random weights of its configurations. device, as of `segue generate`: "cuda" if absent.
//
// A picture of a few steps comes first: it records the step. Rows: the case's is the denoising,
// from the first step to the end of the last; "-total" is from the prompt to a PNG file's bytes;
// "-encode" and "-decode" the stages around it. No peer.
Result<std::vector<Row>> BenchGpuImage(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
