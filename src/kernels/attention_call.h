// What every attention kernel over a schedule in device memory is told (attention_schedule.h).
#pragma once

#include "kernels/attention_schedule.h"
#include "segue/attention.h"

namespace segue::kernels {

struct AttentionCall {
  int32_t source_count = 0;
  // Device memory, ScheduleBytes(capacity) bytes aligned to 16, made for these heads and this
  // `causal`.
  const void* schedule = nullptr;
  ScheduleCapacity capacity{};
  // [q_heads, lse_stride] float32 in device memory, or null: the natural logarithm of each row's
  // sum of exponentials, sequences one after the other, each its segments' rows in order; -infinity
  // for a row that sees no key.
  float* lse = nullptr;
  int64_t lse_stride = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;  // divides q_heads
  int32_t head_dim = 0;
  float softmax_scale = 0.0f;  // greater than 0, finite
  bool causal = false;
  attention::ElementType element_type = attention::ElementType::kBFloat16;
};

// Null, or why no kernel can run it: all but head_dim and the memory.
const char* AttentionCallRejects(const AttentionCall& call);

}  // namespace segue::kernels
