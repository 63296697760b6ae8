// Linked instead of the CUDA kernel where the build has no CUDA.
#include "kernels/cuda/random/random_weights.h"

namespace segue::kernels::cuda {

const char* RejectsRandomWeights(const Context&) { return "this build has no CUDA"; }

Status RandomWeights(const RandomWeightsParams&, const Context&) {
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "random weights",
               .argument = "stream",
               .got = "a build without CUDA",
               .wanted = "a build with the preset 'cuda'"};
}

}  // namespace segue::kernels::cuda
