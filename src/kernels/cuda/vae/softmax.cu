// Softmax of long rows of float32 scores, in place: a CTA a row, the row in registers.
//
// What a row's bytes depend on is its own length alone: thread t adds the quads t, t + 512, ... in
// ascending order, and the threads' sums are added as butterflies over lanes, then over warps.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/ptx.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kThreads = 512;  // two CTAs an SM at 16,384 columns: one loads, one computes
constexpr int32_t kWarps = kThreads / 32;
constexpr int32_t kQuad = 4;  // floats that move together
constexpr float kNegativeInfinity = -__builtin_huge_valf();
constexpr float kLog2E = 1.44269502f;

struct Arguments {
  float* scores;
  int64_t stride;
  int32_t cols;
  int32_t padded_cols;
  float factor;  // scale x log2(e)
};

// Scores that do not exist weigh nothing.
__device__ __forceinline__ float4 LoadQuad(const float* row, int32_t first, int32_t cols) {
  if (first + kQuad <= cols) return *reinterpret_cast<const float4*>(row + first);
  float4 quad = {kNegativeInfinity, kNegativeInfinity, kNegativeInfinity, kNegativeInfinity};
  if (first < cols) quad.x = row[first];
  if (first + 1 < cols) quad.y = row[first + 1];
  if (first + 2 < cols) quad.z = row[first + 2];
  return quad;
}

// Of the whole CTA, for all of its threads. Everything loaded before is in registers afterwards.
__device__ __forceinline__ float CtaMaximum(float value, float* shared) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) value = fmaxf(value, shared[i]);
  return value;
}

__device__ __forceinline__ float CtaSum(float value, float* shared) {
  value = device::LaneSum(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  return device::LaneSum(lane < kWarps ? shared[lane] : 0.0f);
}

template <int kQuads>
__global__ void __launch_bounds__(kThreads)
    SoftmaxKernel(const __grid_constant__ Arguments arguments) {
  __shared__ float maxima[kWarps];
  __shared__ float sums[kWarps];
  float* row = arguments.scores + blockIdx.x * arguments.stride;
  float4 scores[kQuads];
  float maximum = kNegativeInfinity;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const auto first = static_cast<int32_t>((threadIdx.x + i * kThreads) * kQuad);
    scores[i] = LoadQuad(row, first, arguments.cols);
    maximum =
        fmaxf(fmaxf(maximum, fmaxf(scores[i].x, scores[i].y)), fmaxf(scores[i].z, scores[i].w));
  }
  maximum = CtaMaximum(maximum, maxima);
  const float base = maximum == kNegativeInfinity ? 0.0f : __fmul_rn(maximum, arguments.factor);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    for (float* score : {&scores[i].x, &scores[i].y, &scores[i].z, &scores[i].w}) {
      *score = device::Exp2(__fmaf_rn(*score, arguments.factor, -base));
      sum = __fadd_rn(sum, *score);
    }
  }
  const float inverse = __frcp_rn(CtaSum(sum, sums));
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const auto first = static_cast<int32_t>((threadIdx.x + i * kThreads) * kQuad);
    if (first >= arguments.padded_cols) continue;
    const uint2 packed = {
        device::BFloat16::Pack(__fmul_rn(scores[i].x, inverse), __fmul_rn(scores[i].y, inverse)),
        device::BFloat16::Pack(__fmul_rn(scores[i].z, inverse), __fmul_rn(scores[i].w, inverse))};
    *reinterpret_cast<uint2*>(reinterpret_cast<uint16_t*>(row) + first) = packed;
  }
}

template <int kQuads>
Status Launch(const SoftmaxParams& params, const Arguments& arguments, const Context& context) {
  if constexpr (kQuads < kMaxSoftmaxColumns / kQuad / kThreads) {
    if (params.padded_cols > kQuads * kQuad * kThreads) {
      return Launch<2 * kQuads>(params, arguments, context);
    }
  }
  return Enqueue("softmax", SoftmaxKernel<kQuads>, {params.rows, kThreads, context.stream},
                 arguments);
}

}  // namespace

Status SoftmaxInPlace(const SoftmaxParams& params, const Context& context) {
  if (params.rows == 0) return {};
  const Arguments arguments = {.scores = params.scores,
                               .stride = params.stride,
                               .cols = static_cast<int32_t>(params.cols),
                               .padded_cols = static_cast<int32_t>(params.padded_cols),
                               .factor = params.scale * kLog2E};
  return Launch<1>(params, arguments, context);
}

}  // namespace segue::kernels::cuda
