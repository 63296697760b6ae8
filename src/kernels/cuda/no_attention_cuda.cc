// Linked instead of the plain kernel where the build has no CUDA.
#include "kernels/attention_cuda.h"
#include "kernels/cuda/no_cuda.h"

namespace segue::kernels {

Status AttentionCuda(const AttentionCudaParams&, const Stream&) {
  return NoCuda("attention", "cuda");
}

}  // namespace segue::kernels
