// Small pieces of PTX that fit no other header of this layer.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

// The address of shared memory as the asynchronous instructions take it.
__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Moves registers between warpgroups: every warp of the warpgroup executes it.
template <uint32_t kRegisters>
__device__ __forceinline__ void GrowRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <uint32_t kRegisters>
__device__ __forceinline__ void ShrinkRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// 2^x with results below 2^-126 flushed to zero; 2^-inf is 0. Relative error about 2^-22.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x); log2(0) is -inf.
__device__ __forceinline__ float Log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Four matrices of 8 x 8 16-bit elements, laid out over the warp as wgmma accumulators are:
// register m of lane l is row l / 4, columns 2 (l % 4) + {0, 1} of matrix m. Row r of matrix m goes
// to the 16 bytes at the address that lane 8 m + r names.
__device__ __forceinline__ void StoreMatrices(uint32_t address, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

__device__ __forceinline__ uint4 LoadShared128(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

}  // namespace segue::kernels::device
