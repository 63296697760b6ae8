// Stands for the CUDA runtime's header when packing is compiled for the host: keywords, vector
// types, and what threads of a CTA exchange.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct dim3 {
  dim3(uint32_t extent = 1) : x(extent) {}  // NOLINT: converts like CUDA's
  uint32_t x;
};
struct EmulatedIndex {
  uint32_t x = 0;
};
extern EmulatedIndex threadIdx;
extern EmulatedIndex blockIdx;
extern EmulatedIndex gridDim;

using std::max;
using std::min;

// All threads of the CTA meet; returns what each brought.
const uint32_t* EmulatedMeet(uint32_t value);

inline void __syncthreads() { EmulatedMeet(0); }
inline uint32_t __ballot_sync(uint32_t, bool predicate) {
  const uint32_t first = threadIdx.x / 32 * 32;
  const uint32_t* values = EmulatedMeet(predicate ? 1 : 0);
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) result |= values[first + lane] << lane;
  return result;
}
inline int32_t __reduce_add_sync(uint32_t, int32_t value) {
  const uint32_t first = threadIdx.x / 32 * 32;
  const uint32_t* values = EmulatedMeet(static_cast<uint32_t>(value));
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) result += values[first + lane];
  return static_cast<int32_t>(result);
}
int __syncthreads_and(int predicate);
inline int __popc(uint32_t value) { return __builtin_popcount(value); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
// Attributes say when a kernel may start, which is at once here.
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

// Runs or captures `thread` for every thread of the grid.
cudaError_t EmulatedLaunch(const cudaLaunchConfig_t& config, const std::function<void()>& thread);

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  return EmulatedLaunch(*config, [kernel, arguments...] { kernel(arguments...); });
}
