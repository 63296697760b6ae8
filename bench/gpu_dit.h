// A forward, or a whole denoising step, of Qwen-Image's transformer on a GPU.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: width, height (of the picture), text (rows of each prompt), requests, guided (0 or
// 1), part ("forward" or "step": guidance and the Euler step too), layers (60 in the model; its
// time grows with them). Random weights of the model's sizes, captured as the engine captures it.
//
// Verified: the recorded bytes are those of the plain reference kernels, run eagerly, and finite.
// peer: "alone", each request in a step of its own, one after the other, which is what several
// requests have by default; "eager", the same work launch by launch; "diffusers", a forward of one
// request, or a guided step of one, under --peer-python. One request has none by default.
Result<std::vector<Row>> BenchGpuDit(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
