#include "kernels/attention_cuda.h"

#include <algorithm>

namespace segue::kernels {
namespace {

const char* RejectSource(const attention::TensorSet& source) {
  if (source.q_rows < 0 || source.kv_rows < 0) return "a source with a negative number of rows";
  if (source.q_rows > 0 && (source.q.data == nullptr || source.o.data == nullptr)) {
    return "a tensor with rows has a null pointer";
  }
  if (source.kv_rows > 0 && (source.k.data == nullptr || source.v.data == nullptr)) {
    return "a tensor with rows has a null pointer";
  }
  return nullptr;
}

}  // namespace

int32_t AttentionCudaCtas(const AttentionCudaParams& params) {
  const int64_t fitting = int64_t{params.multiprocessors} *
                          AttentionCudaTilingOf(params.head_dim).ctas_a_multiprocessor;
  // Two tiles an entry; one CTA has nothing to do where there are none.
  return static_cast<int32_t>(
      std::clamp<int64_t>(2 * int64_t{params.capacity.work}, 1, std::max<int64_t>(fitting, 1)));
}

const char* AttentionCudaRejects(const AttentionCudaParams& params) {
  if (params.head_dim <= 0 || params.head_dim % 8 != 0 || params.head_dim > 256) {
    return "head_dim is not a multiple of 8 up to 256";
  }
  if (const char* reason = AttentionCallRejects(params)) return reason;
  if (params.schedule == nullptr || params.multiprocessors <= 0) {
    return "no schedule in device memory";
  }
  for (int32_t i = 0; i < params.source_count; ++i) {
    if (const char* reason = RejectSource(params.sources[i])) return reason;
  }
  return nullptr;
}

}  // namespace segue::kernels
