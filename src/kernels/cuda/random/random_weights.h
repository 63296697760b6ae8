// The CUDA implementation of random_weights.h, without CUDA headers. A build without CUDA links
// no_random_weights.cc.
#pragma once

#include "kernels/random_weights.h"

namespace segue::kernels::cuda {

// Preconditions: what the operation of the same name checks.
Status RandomWeights(const RandomWeightsParams& params, const Context& context);

}  // namespace segue::kernels::cuda
