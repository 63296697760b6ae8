// How the plain kernels are launched: a thread an item, or a warp a row.
#pragma once

#include <type_traits>

#include "kernels/cuda/pack/launch.h"
#include "kernels/registry.h"

namespace segue::kernels::cuda {

inline constexpr int32_t kPlainThreads = 256;
inline constexpr int32_t kPlainWarps = kPlainThreads / 32;

__device__ __forceinline__ int64_t ItemIndex() {
  return int64_t{blockIdx.x} * kPlainThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t WarpIndex() { return ItemIndex() / 32; }
__device__ __forceinline__ int32_t LaneIndex() { return static_cast<int32_t>(threadIdx.x % 32); }

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Kernel, typename... Arguments>
Status EnqueueItems(const char* op, Kernel kernel, int64_t items, const Context& context,
                    const Arguments&... arguments) {
  if (items == 0) return {};
  return Enqueue(op, kernel, {CeilDiv(items, kPlainThreads), kPlainThreads, context.stream},
                 arguments...);
}

template <typename Kernel, typename... Arguments>
Status EnqueueWarps(const char* op, Kernel kernel, int64_t rows, const Context& context,
                    const Arguments&... arguments) {
  if (rows == 0) return {};
  return Enqueue(op, kernel, {CeilDiv(rows, kPlainWarps), kPlainThreads, context.stream},
                 arguments...);
}

// Sets memory to a byte's value, in a graph as well.
inline Status EnqueueFill(const char* op, void* memory, int byte, size_t bytes,
                          const Context& context) {
  const cudaError_t status =
      cudaMemsetAsync(memory, byte, bytes, static_cast<cudaStream_t>(context.stream.cuda_stream()));
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = op,
               .argument = "fill",
               .got = cudaGetErrorString(status),
               .wanted = "a working CUDA device"};
}

// run(std::true_type) where every step of a chain is rounded, else run(std::false_type).
template <class Run>
Status WithSteps(Rounding rounding, const Run& run) {
  return rounding == Rounding::kBF16 ? run(std::true_type{}) : run(std::false_type{});
}

}  // namespace segue::kernels::cuda
