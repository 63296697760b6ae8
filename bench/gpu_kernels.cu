// Kernels that benchmarks need beside those they measure.
#include "bench/gpu_kernels.h"

#include <cuda_bf16.h>

namespace segue::bench {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 132 * 16;  // grid-stride beyond

unsigned Blocks(int64_t work) {
  const int64_t blocks = (work + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks < kMaxBlocks ? blocks : kMaxBlocks));
}

// SplitMix64's output function: a bijection whose outputs over a counter pass for random.
__device__ uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Box-Muller: two values from one number.
__global__ void FillNormalKernel(__nv_bfloat16* values, int64_t count, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; 2 * i < count; i += step) {
    const uint64_t bits = Mix(Mix(seed) + static_cast<uint64_t>(i));
    const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;  // (0, 1]
    const float angle = static_cast<float>(bits & 0xffffff) * 0x1p-23f;  // in units of pi
    const float radius = sqrtf(-2.0f * __logf(u));
    float sine = 0.0f;
    float cosine = 0.0f;
    sincospif(angle, &sine, &cosine);
    values[2 * i] = __float2bfloat16(radius * cosine);
    if (2 * i + 1 < count) values[2 * i + 1] = __float2bfloat16(radius * sine);
  }
}

__global__ void CountNonFiniteKernel(const uint16_t* values, int64_t rows, int64_t row_elements,
                                     int64_t row_stride, unsigned long long* total) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned long long found = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * row_elements;
       i += step) {
    const uint16_t value = values[i / row_elements * row_stride + i % row_elements];
    found += (value & 0x7f80) == 0x7f80 ? 1 : 0;
  }
  if (found != 0) atomicAdd(total, found);
}

}  // namespace

cudaError_t LaunchFillNormal(uint16_t* values, int64_t count, uint64_t seed, cudaStream_t stream) {
  FillNormalKernel<<<Blocks((count + 1) / 2), kThreads, 0, stream>>>(
      reinterpret_cast<__nv_bfloat16*>(values), count, seed);
  return cudaGetLastError();
}

cudaError_t LaunchCountNonFinite(const uint16_t* values, int64_t rows, int64_t row_elements,
                                 int64_t row_stride, unsigned long long* total,
                                 cudaStream_t stream) {
  CountNonFiniteKernel<<<Blocks(rows * row_elements), kThreads, 0, stream>>>(
      values, rows, row_elements, row_stride, total);
  return cudaGetLastError();
}

}  // namespace segue::bench
