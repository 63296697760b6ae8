#include "kernels/cuda/cublaslt/comparison.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace segue::kernels::cublaslt {
namespace {

constexpr int32_t kThreads = 256;
// Some 4 CTAs on each of the 132 SMs; the loops stride over the rest.
constexpr int32_t kCtas = 528;

__device__ uint64_t Mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0x9e3779b97f4a7c15u;
  value ^= value >> 29;
  value *= 0xbf58476d1ce4e5b9u;
  return value ^ (value >> 32);
}

// The sum of four uniform 16-bit numbers, centred and scaled to variance 1.
__device__ float Deviate(uint64_t seed) {
  const uint64_t bits = Mix(seed);
  int32_t sum = -2 * 65535;
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) sum += static_cast<int32_t>((bits >> (16 * i)) & 0xffff);
  return static_cast<float>(sum) * (1.7320508f / 65536.0f);
}

// Element i of x [rows, k]. Odd rows do not mirror.
__global__ void __launch_bounds__(kThreads)
    FillX(__nv_bfloat16* x, int64_t count, int64_t k, uint64_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / k;
    const int64_t col = i % k;
    const int64_t source = row % 2 == 0 && col >= k / 2 ? k - 1 - col : col;
    x[i] = __float2bfloat16(Deviate(seed + static_cast<uint64_t>(row * k + source)));
  }
}

__global__ void __launch_bounds__(kThreads)
    FillWeight(__nv_bfloat16* weight, int64_t count, int64_t n, int64_t k, bool transposed,
               uint64_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t within = i % (n * k);
    const int64_t row = transposed ? within % n : within / k;
    const int64_t col = transposed ? within / n : within % k;
    const bool mirrored = col >= k / 2;
    const int64_t source = mirrored ? k - 1 - col : col;
    const float value = Deviate(seed + static_cast<uint64_t>(row * k + source));
    weight[i] = __float2bfloat16(mirrored ? -value : value);
  }
}

__global__ void __launch_bounds__(kThreads)
    FillBias(__nv_bfloat16* bias, int64_t n, uint64_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kThreads) {
    bias[i] = __float2bfloat16(i % 4 == 3 ? Deviate((uint64_t{1} << 49) + static_cast<uint64_t>(i))
                                          : 0.0f);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    CountKernel(const T* a, int64_t a_stride, const T* b, int64_t count, int64_t cols,
                unsigned long long* differences) {
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    mine += a[i / cols * a_stride + i % cols] != b[i] ? 1 : 0;
  }
  if (mine != 0) atomicAdd(differences, mine);
}

Status Launched(const char* operation) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = operation,
               .argument = "launch",
               .got = cudaGetErrorString(status),
               .wanted = "a working CUDA device"};
}

}  // namespace

Status FillComparison(const ComparisonOperands& operands, const Stream& stream) {
  const auto on = static_cast<cudaStream_t>(stream.cuda_stream());
  const int64_t n = operands.n;
  const int64_t k = operands.k;
  // Each operand's own deviates.
  const auto seed = [&](uint64_t operand) { return (uint64_t{operands.seed} * 3 + operand) << 40; };
  FillX<<<kCtas, kThreads, 0, on>>>(static_cast<__nv_bfloat16*>(operands.x), operands.rows * k, k,
                                    seed(0));
  FillWeight<<<kCtas, kThreads, 0, on>>>(static_cast<__nv_bfloat16*>(operands.weight),
                                         operands.copies * n * k, n, k, operands.transposed,
                                         seed(1));
  FillBias<<<1, kThreads, 0, on>>>(static_cast<__nv_bfloat16*>(operands.bias), n, seed(2));
  return Launched("fill operands of a comparison");
}

Status CountDifferences(const Comparison& comparison, const Stream& stream) {
  const auto on = static_cast<cudaStream_t>(stream.cuda_stream());
  const int64_t count = comparison.rows * comparison.cols;
  auto* differences = reinterpret_cast<unsigned long long*>(comparison.count);
  if (comparison.bytes_each == 2) {
    CountKernel<<<kCtas, kThreads, 0, on>>>(
        static_cast<const uint16_t*>(comparison.a), comparison.a_stride,
        static_cast<const uint16_t*>(comparison.b), count, comparison.cols, differences);
  } else {
    CountKernel<<<kCtas, kThreads, 0, on>>>(
        static_cast<const uint32_t*>(comparison.a), comparison.a_stride,
        static_cast<const uint32_t*>(comparison.b), count, comparison.cols, differences);
  }
  return Launched("compare products");
}

}  // namespace segue::kernels::cublaslt
