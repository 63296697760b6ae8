#include <cuda_runtime.h>

#include "gpu/comm_kernels.h"
#include "kernels/cuda/device/bf16.h"
#include "kernels/cuda/device/system_memory.h"

namespace segue::comm {
namespace {

constexpr int kThreads = 256;

__device__ uint32_t ValueOf(int64_t i, int rank, uint32_t call) {
  return static_cast<uint32_t>((7 * i + 5 * rank + 3 * int64_t{call}) % 31);
}

__global__ void DelayKernel(const uint32_t* call, int rank, uint32_t most_ns) {
  uint32_t hash = (*call * 2 + static_cast<uint32_t>(rank)) * 2654435761u;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  hash ^= hash >> 13;
  const uint64_t end = kernels::device::GlobalTimer() + hash % most_ns;
  while (kernels::device::GlobalTimer() < end) {
  }
}

__global__ void FillKernel(uint16_t* values, int64_t count, int rank, const uint32_t* call) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    values[i] = kernels::device::Narrow(static_cast<float>(ValueOf(i, rank, *call)));
  }
}

__global__ void CheckKernel(const uint16_t* sums, int64_t count, int ranks, const uint32_t* call,
                            uint32_t* wrong) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    uint32_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += ValueOf(i, rank, *call);
    if (kernels::device::Widen(sums[i]) != static_cast<float>(sum)) atomicAdd(wrong, 1u);
  }
}

__global__ void CountKernel(uint32_t* call) { ++*call; }

int CtasFor(int64_t count) {
  const int64_t ctas = (count + kThreads - 1) / kThreads;
  return static_cast<int>(ctas < 1 ? 1 : ctas > 256 ? 256 : ctas);
}

}  // namespace

void LaunchDelay(const uint32_t* call, int rank, uint32_t most_ns, void* stream) {
  DelayKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(call, rank, most_ns);
}
void LaunchFill(uint16_t* values, int64_t count, int rank, const uint32_t* call, void* stream) {
  FillKernel<<<CtasFor(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(values, count,
                                                                                 rank, call);
}
void LaunchCheck(const uint16_t* sums, int64_t count, int ranks, uint32_t* call, uint32_t* wrong,
                 void* stream) {
  CheckKernel<<<CtasFor(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      sums, count, ranks, call, wrong);
  CountKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(call);
}

}  // namespace segue::comm
