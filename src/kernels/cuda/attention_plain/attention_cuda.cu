// Host side of the plain attention kernel.
#include <cuda_runtime.h>

#include <string>

#include "kernels/attention_cuda.h"
#include "kernels/cuda/attention_plain/launch.h"

namespace segue::kernels {
namespace {

bool Aligned(const attention::RowsView& view, int32_t rows) {
  return rows == 0 || (reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
                       view.row_stride % 8 == 0 && view.head_stride % 8 == 0);
}

bool Aligned(const attention::TensorSet& set) {
  return Aligned(set.q, set.q_rows) && Aligned(set.o, set.q_rows) && Aligned(set.k, set.kv_rows) &&
         Aligned(set.v, set.kv_rows);
}

plain::KernelParams KernelParamsOf(const AttentionCudaParams& params) {
  constexpr double kLog2E = 1.4426950408889634;
  plain::KernelParams kernel{};
  kernel.aligned = 1;
  for (int32_t i = 0; i < params.source_count; ++i) {
    kernel.sources[i] = params.sources[i];
    if (!Aligned(params.sources[i])) kernel.aligned = 0;
  }
  kernel.schedule = static_cast<const uint8_t*>(params.schedule);
  kernel.capacity = params.capacity;
  kernel.lse = params.lse;
  kernel.lse_stride = params.lse_stride;
  kernel.head_dim = params.head_dim;
  kernel.queries_per_key_head = params.q_heads / params.kv_heads;
  kernel.causal = params.causal ? 1 : 0;
  kernel.scale_log2 = static_cast<float>(params.softmax_scale * kLog2E);
  return kernel;
}

}  // namespace

Status AttentionCuda(const AttentionCudaParams& params, const Stream& stream) {
  const char* reason = AttentionCudaRejects(params);
  if (reason != nullptr) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "attention",
                 .argument = "cuda",
                 .got = reason,
                 .wanted = "parameters that this back end accepts"};
  }
  const plain::KernelParams kernel = KernelParamsOf(params);
  auto* const cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream());
  const bool bfloat16 = params.element_type == attention::ElementType::kBFloat16;
  const cudaError_t status =
      bfloat16 ? plain::Launch<device::BFloat16>(kernel, AttentionCudaCtas(params), cuda_stream)
               : plain::Launch<device::Float16>(kernel, AttentionCudaCtas(params), cuda_stream);
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "attention",
               .argument = "launch of the plain kernel",
               .got = cudaGetErrorString(status),
               .wanted = "a CUDA device of a compute capability that this build has code for"};
}

}  // namespace segue::kernels
