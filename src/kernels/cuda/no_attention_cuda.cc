// Linked instead of the plain kernel where the build has no CUDA.
#include "kernels/attention_cuda.h"

namespace segue::kernels {

Status AttentionCuda(const AttentionCudaParams&, const Stream&) {
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "attention",
               .argument = "cuda",
               .got = "a build without CUDA",
               .wanted = "a build with the preset 'cuda'"};
}

}  // namespace segue::kernels
