// A plain copy in vectors of 16 bytes.
#include <cuda_runtime.h>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/pack/launch.h"
#include "kernels/cuda/pack/pack.h"
#include "kernels/cuda/pack/vectors.h"

namespace segue::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kMoveThreads, kCtasPerSm)
    CopyKernel(uint64_t from, uint64_t to, int64_t vectors) {
  const int64_t first = int64_t{blockIdx.x} * kVectorsPerCta + threadIdx.x;
  uint4 values[kVectorsPerThread];
#pragma unroll
  for (int32_t i = 0; i < kVectorsPerThread; ++i) {
    const int64_t at = first + i * kMoveThreads;
    values[i] = device::LoadOrZeros<uint4>(at < vectors ? from + at * sizeof(uint4) : 0);
  }
#pragma unroll
  for (int32_t i = 0; i < kVectorsPerThread; ++i) {
    const int64_t at = first + i * kMoveThreads;
    if (at < vectors) device::Store(to + at * sizeof(uint4), values[i]);
  }
}

}  // namespace

Status CopyBytes(const CopyParams& params, const Context& context) {
  constexpr char kOp[] = "copy bytes";
  const int64_t vectors = params.bytes / int64_t{sizeof(uint4)};
  const int64_t ctas = (vectors + kVectorsPerCta - 1) / kVectorsPerCta;
  return Enqueue(kOp, CopyKernel, {ctas, kMoveThreads, context.stream},
                 reinterpret_cast<uint64_t>(params.from), reinterpret_cast<uint64_t>(params.to),
                 vectors);
}

}  // namespace segue::kernels::cuda
