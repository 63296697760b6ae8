// Vectors of partial sums, added in float32 from rank 0 upward and rounded once.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/device/bf16.h"

namespace segue::kernels::cuda {

struct BFloat16Sum {
  device::Floats sum;
  __device__ __forceinline__ void Begin(uint4 x) { sum = device::Widen(x); }
  __device__ __forceinline__ void Add(uint4 x) {
    const device::Floats wide = device::Widen(x);
#pragma unroll
    for (int i = 0; i < device::kVector; ++i) sum.at[i] = __fadd_rn(sum.at[i], wide.at[i]);
  }
  __device__ __forceinline__ uint4 Rounded() const { return device::Narrow(sum); }

  // Of two: the order does not matter, and one instruction rounds as the sum in float32 would
  // (device/bf16.h).
  __device__ __forceinline__ static uint4 OfTwo(uint4 a, uint4 b) {
    return {device::AddPairs(a.x, b.x), device::AddPairs(a.y, b.y), device::AddPairs(a.z, b.z),
            device::AddPairs(a.w, b.w)};
  }
};

struct FloatSum {
  float4 sum;
  __device__ __forceinline__ static float4 Floats(uint4 x) {
    return {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w)};
  }
  __device__ __forceinline__ void Begin(uint4 x) { sum = Floats(x); }
  __device__ __forceinline__ void Add(uint4 x) {
    const float4 more = Floats(x);
    sum = {__fadd_rn(sum.x, more.x), __fadd_rn(sum.y, more.y), __fadd_rn(sum.z, more.z),
           __fadd_rn(sum.w, more.w)};
  }
  __device__ __forceinline__ uint4 Rounded() const {
    return {__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
            __float_as_uint(sum.w)};
  }
  __device__ __forceinline__ static uint4 OfTwo(uint4 a, uint4 b) {
    FloatSum both;
    both.Begin(a);
    both.Add(b);
    return both.Rounded();
  }
};

}  // namespace segue::kernels::cuda
