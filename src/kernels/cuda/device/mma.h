// Products of one warp, from shared memory through registers: instructions of compute capability
// 8.0.
//
// An accumulator of 16 rows and 8 columns is four registers of a lane: rows lane / 4 and
// lane / 4 + 8, columns 2 (lane % 4) + {0, 1}, the second row after the first. An A operand of 16
// rows and 16 columns is two such accumulators side by side, rounded and packed (PackWeights).
#pragma once

#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/ptx.h"

namespace segue::kernels::device {

// Four matrices of 8 x 8 16-bit elements. Row r of matrix m are the 16 bytes at the address that
// lane 8 m + r names; register m of lane l becomes row l / 4, columns 2 (l % 4) + {0, 1} of it.
__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// The same of each matrix's transpose.
__device__ __forceinline__ void LoadTransposed(const void* row, uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// accumulator[0..3] += a (16 x 16) b (16 x 8), summed in float. b is given by its columns: rows
// 0..7 of them in b0, 8..15 in b1, as LoadMatrices leaves them.
template <class Element>
__device__ __forceinline__ void MultiplyAdd(float* accumulator, const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1);
template <>
__device__ __forceinline__ void MultiplyAdd<BFloat16>(float* accumulator, const uint32_t (&a)[4],
                                                      uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(accumulator[0]), "+f"(accumulator[1]), "+f"(accumulator[2]), "+f"(accumulator[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void MultiplyAdd<Float16>(float* accumulator, const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(accumulator[0]), "+f"(accumulator[1]), "+f"(accumulator[2]), "+f"(accumulator[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies 16 bytes to shared memory without waiting; both addresses are multiples of 16.
__device__ __forceinline__ void CopyAsync(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(shared)), "l"(global)
               : "memory");
}
// Waits for this thread's copies.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace segue::kernels::device
