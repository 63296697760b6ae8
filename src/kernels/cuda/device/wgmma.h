// Warpgroup matrix products (wgmma): 64 rows of A times N columns of B, 16 deep, added in float.
//
// Thread t of the warpgroup holds rows 16 (t / 32) + (t % 32) / 4 + {0, 8} of the accumulator:
// d[4 j + 2 r + i] is row r of the two, column 8 j + 2 (t % 4) + i.
//
// Products are asynchronous: WgmmaFence before the first one and after registers changed,
// WgmmaCommit closes a group, WgmmaWait<n> returns when at most n groups are unfinished, and
// FenceRegisters keeps the compiler from moving uses of a result above that wait.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/element.h"

namespace segue::kernels::device {

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kUnfinished>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kUnfinished) : "memory");
}
template <int kCount>
__device__ __forceinline__ void FenceRegisters(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// clang-format off
// The assembler wants every accumulator register spelled out.
#define SEGUE_WGMMA_D64 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
  "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
  "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
  "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
  "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
  "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
  "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
  "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
  "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

#define SEGUE_WGMMA_D88 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
  "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
  "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
  "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
  "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
  "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
  "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
  "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
  "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), \
  "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), \
  "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), \
  "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), \
  "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])

#define SEGUE_WGMMA_SS_N128(type) \
  asm volatile( \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n" \
      : SEGUE_WGMMA_D64 \
      : "l"(a), "l"(b), "r"(accumulate))

#define SEGUE_WGMMA_SS_N176(type) \
  asm volatile( \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %90, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n176k16.f32." type "." type " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
      "%80, %81, %82, %83, %84, %85, %86, %87" \
      "}, %88, %89, p, 1, 1, 0, 0;\n}\n" \
      : SEGUE_WGMMA_D88 \
      : "l"(a), "l"(b), "r"(accumulate))

#define SEGUE_WGMMA_RS_N128(type) \
  asm volatile( \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n" \
      : SEGUE_WGMMA_D64 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
// clang-format on

// Products of N columns.
template <class Element, int kColumns>
struct Wgmma;

// d = a b, or d += a b: both operands in shared memory, rows along the sum.
template <>
struct Wgmma<BFloat16, 176> {
  __device__ __forceinline__ static void Shared(float (&d)[88], uint64_t a, uint64_t b,
                                                int accumulate) {
    SEGUE_WGMMA_SS_N176("bf16");
  }
};
template <>
struct Wgmma<Float16, 176> {
  __device__ __forceinline__ static void Shared(float (&d)[88], uint64_t a, uint64_t b,
                                                int accumulate) {
    SEGUE_WGMMA_SS_N176("f16");
  }
};

// Also d += a b with a in registers and b in shared memory, rows across the sum.
template <>
struct Wgmma<BFloat16, 128> {
  __device__ __forceinline__ static void Shared(float (&d)[64], uint64_t a, uint64_t b,
                                                int accumulate) {
    SEGUE_WGMMA_SS_N128("bf16");
  }
  __device__ __forceinline__ static void Registers(float (&d)[64], const uint32_t* a, uint64_t b) {
    SEGUE_WGMMA_RS_N128("bf16");
  }
};
template <>
struct Wgmma<Float16, 128> {
  __device__ __forceinline__ static void Shared(float (&d)[64], uint64_t a, uint64_t b,
                                                int accumulate) {
    SEGUE_WGMMA_SS_N128("f16");
  }
  __device__ __forceinline__ static void Registers(float (&d)[64], const uint32_t* a, uint64_t b) {
    SEGUE_WGMMA_RS_N128("f16");
  }
};

#undef SEGUE_WGMMA_D64
#undef SEGUE_WGMMA_D88
#undef SEGUE_WGMMA_SS_N128
#undef SEGUE_WGMMA_SS_N176
#undef SEGUE_WGMMA_RS_N128

}  // namespace segue::kernels::device
