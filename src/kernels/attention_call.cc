#include "kernels/attention_call.h"

#include <cmath>

namespace segue::kernels {

const char* AttentionCallRejects(const AttentionCall& call) {
  constexpr int32_t kMaxHeads = 1 << 16;
  if (call.element_type == attention::ElementType::kFloat32) {
    return "element type is float32, not bfloat16 or float16";
  }
  if (call.kv_heads <= 0 || call.q_heads <= 0 || call.q_heads > kMaxHeads ||
      call.q_heads % call.kv_heads != 0) {
    return "query heads are no multiple of key/value heads";
  }
  if (!(call.softmax_scale > 0.0f) || !std::isfinite(call.softmax_scale)) {
    return "softmax scale is not a finite number greater than 0";
  }
  if (call.source_count <= 0 || call.source_count > kMaxSources) {
    return "no source tensors, or more than 8";
  }
  if (call.capacity.segments <= 0 || call.capacity.segments > kMaxSegments) {
    return "no segments, or more than 32 in a sequence";
  }
  if (call.capacity.sequences <= 0 || call.capacity.sequences > kMaxSequences) {
    return "no sequences, or more than 2048";
  }
  return nullptr;
}

}  // namespace segue::kernels
