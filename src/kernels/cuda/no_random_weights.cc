// Linked instead of the CUDA kernel where the build has no CUDA.
#include "kernels/cuda/no_cuda.h"
#include "kernels/cuda/random/random_weights.h"

namespace segue::kernels::cuda {

Status RandomWeights(const RandomWeightsParams&, const Context&) {
  return NoCuda("random weights");
}

}  // namespace segue::kernels::cuda
