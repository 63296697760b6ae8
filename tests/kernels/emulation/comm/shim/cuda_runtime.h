// Stands for the CUDA runtime's header when the kernels of groups are compiled for the host:
// keywords, vector types, arithmetic, and what threads of a CTA exchange. A CTA is a thread of the
// host, so what a CTA has for itself is thread_local.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local

struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct dim3 {
  dim3(uint32_t extent = 1) : x(extent) {}  // NOLINT: converts like CUDA's
  uint32_t x;
};
struct EmulatedIndex {
  uint32_t x = 0;
};
extern thread_local EmulatedIndex threadIdx;
extern thread_local EmulatedIndex blockIdx;
extern thread_local EmulatedIndex blockDim;
extern thread_local EmulatedIndex gridDim;

// All threads of the CTA meet; returns what each brought.
const uint32_t* EmulatedMeet(uint32_t value);

inline void __syncthreads() { EmulatedMeet(0); }
inline void __syncwarp() { EmulatedMeet(0); }  // as all warps of a CTA call it
inline int __syncthreads_or(int predicate) {
  const uint32_t* values = EmulatedMeet(predicate != 0 ? 1 : 0);
  return std::any_of(values, values + blockDim.x, [](uint32_t value) { return value != 0; }) ? 1
                                                                                             : 0;
}
inline float __shfl_xor_sync(uint32_t, float value, int mask) {
  const uint32_t lane = threadIdx.x ^ static_cast<uint32_t>(mask);
  return std::bit_cast<float>(EmulatedMeet(std::bit_cast<uint32_t>(value))[lane]);
}

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

// Runs the whole grid and returns when it is done: the caller is a rank.
void EmulatedLaunch(uint32_t ctas, uint32_t threads, const std::function<void()>& thread);

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  EmulatedLaunch(config->gridDim.x, config->blockDim.x, [&] { kernel(arguments...); });
  return cudaSuccess;
}
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(Parameters...), int,
                                                          size_t) {
  *blocks = 2;
  return cudaSuccess;
}
