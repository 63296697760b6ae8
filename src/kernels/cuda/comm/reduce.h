// What the kernels of groups share, and how the host asks for each.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/comm/meeting.h"

namespace segue::kernels::cuda {

// This CTA's share of memory that a failed call should have written.
__device__ __forceinline__ void PoisonPart(void* memory, int64_t bytes) {
  constexpr int64_t kVector = 16;
  const auto step = static_cast<int64_t>(gridDim.x) * blockDim.x * kVector;
  auto at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
  for (; at < bytes; at += step) {
    *reinterpret_cast<uint4*>(static_cast<char*>(memory) + at) = Poison();
  }
}

// The smallest of room(dtype, unroll) over all instantiations of a kernel.
template <class Room>
cudaError_t SmallestRoom(int32_t* ctas, const Room& room) {
  struct Kind {
    DType dtype;
    int32_t unroll;
  };
  constexpr Kind kKinds[] = {
      {DType::kBF16, 1}, {DType::kBF16, 2}, {DType::kBF16, 4}, {DType::kF32, 4}};
  *ctas = kMaxReduceCtas;
  for (const Kind& kind : kKinds) {
    int32_t one = 0;
    const cudaError_t status = room(kind.dtype, kind.unroll, &one);
    if (status != cudaSuccess) return status;
    *ctas = one < *ctas ? one : *ctas;
  }
  return cudaSuccess;
}

// CTAs of a group that are resident at once, for every instantiation.
cudaError_t OneShotRoom(int32_t threads, int32_t* ctas);
cudaError_t TwoShotRoom(int32_t threads, int32_t* ctas);
cudaError_t SumNormRoom(int32_t threads, int32_t* ctas);

}  // namespace segue::kernels::cuda
