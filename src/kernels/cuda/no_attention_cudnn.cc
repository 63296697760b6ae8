// Linked in place of cudnn/ where there is no CUDA toolkit, no cuDNN header or no header of its
// frontend.
#include "kernels/attention_cudnn.h"

namespace segue::kernels {
namespace {

Error NoCudnn() {
  return {.code = ErrorCode::kUnsupported,
          .operation = "load cuDNN",
          .argument = "",
          .got = "a build without cuDNN's headers",
          .wanted =
              "a build with CUDA, cudnn.h and the headers of nvidia-cudnn-frontend "
              "(docs/performance.md)"};
}

}  // namespace

Result<std::unique_ptr<AttentionCudnn>> AttentionCudnn::Create(const AttentionCudnnShape&) {
  return NoCudnn();
}

Result<std::string> CudnnVersion() { return NoCudnn(); }

}  // namespace segue::kernels
