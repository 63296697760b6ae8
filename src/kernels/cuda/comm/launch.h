// How kernels of groups are launched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/all_reduce.h"
#include "kernels/cuda/pack/launch.h"

namespace segue::kernels::cuda {

inline constexpr int kVectorBytes = 16;
inline constexpr int kMaxReduceThreads = 512;
// Of 512 threads an SM: what the registers leave room for.
inline constexpr int kReduceCtasPerSm = 2;

inline int64_t ReduceVectors(const AllReduceParams& params) {
  int64_t vectors = 0;
  for (int i = 0; i < params.part_count; ++i) vectors += params.parts[i].bytes / kVectorBytes;
  return vectors;
}

// One vector a thread, until the GPU has no more room: short messages need many SMs too, as each
// takes only so much at a time.
inline int64_t CtasFor(int64_t vectors, const ReduceTuning& tuning) {
  const int64_t wanted = (vectors + tuning.threads - 1) / tuning.threads;
  return std::clamp<int64_t>(wanted, 1, std::clamp<int64_t>(tuning.ctas, 1, kMaxReduceCtas));
}

inline Grid GridOf(const AllReduceParams& params, const Context& context) {
  return {CtasFor(ReduceVectors(params), params.tuning), params.tuning.threads, context.stream,
          true};
}

// Of CTAs resident on the current device at once, the share of one group. Loads the kernel.
template <typename... Parameters>
cudaError_t RoomOf(void (*kernel)(Parameters...), int32_t threads, int32_t* ctas) {
  int device = 0;
  int processors = 0;
  int per_processor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status == cudaSuccess) {
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, threads, 0);
  }
  *ctas = std::clamp(per_processor * processors / kGroupsAtOnce, 0, kMaxReduceCtas);
  return status;
}

}  // namespace segue::kernels::cuda
