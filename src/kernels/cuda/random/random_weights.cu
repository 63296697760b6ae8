// A thread makes eight elements and stores them at once: a 40 GB model is 10 ms of stores.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/pack/launch.h"
#include "kernels/cuda/random/random_weights.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kElements = 8;  // of a thread: 16 bytes

// Explicit rounding: a contracted multiply-add would give other bytes than the reference.
__global__ void __launch_bounds__(kThreads)
    RandomWeightsKernel(RandomWeightsParams params, float scale) {
  const int64_t count = params.rows * params.cols;
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kElements;
  if (begin >= count) return;
  int64_t row = begin / params.cols;
  int64_t col = begin - row * params.cols;
  alignas(16) uint16_t values[kElements];
#pragma unroll
  for (int32_t i = 0; i < kElements; ++i) {
    const uint64_t element = static_cast<uint64_t>(params.first + row * params.stride + col);
    const float sum = static_cast<float>(RandomWeightSum(params.key, element));
    const float value = __fadd_rn(__fmul_rn(sum, scale), params.mean);
    values[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    if (++col == params.cols) {
      col = 0;
      ++row;
    }
  }
  if (begin + kElements <= count && reinterpret_cast<uint64_t>(params.y) % sizeof(uint4) == 0) {
    *reinterpret_cast<uint4*>(params.y + begin) = *reinterpret_cast<const uint4*>(values);
    return;
  }
  for (int64_t i = 0; i < kElements && begin + i < count; ++i) params.y[begin + i] = values[i];
}

}  // namespace

Status RandomWeights(const RandomWeightsParams& params, const Context& context) {
  constexpr int64_t kCtaElements = kThreads * kElements;
  const int64_t ctas = (params.rows * params.cols + kCtaElements - 1) / kCtaElements;
  const float scale = params.deviation / kRandomWeightDeviation;
  return Enqueue("random weights", RandomWeightsKernel, {ctas, kThreads, context.stream}, params,
                 scale);
}

}  // namespace segue::kernels::cuda
