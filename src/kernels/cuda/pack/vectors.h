// Moving vectors of 2 to 16 bytes, several in flight a thread.
//
// A chip at 4.2 TB/s moves one warp's 512 bytes per SM in some 55 clocks, so instructions are
// plentiful and requests in flight are what counts: about 16 KiB of loads an SM cover the latency
// of memory (2.1 TB/s read x 1 us / 132), and 4 CTAs of 256 threads with 4 vectors each keep 64
// KiB.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::cuda {

inline constexpr int32_t kMoveThreads = 256;
inline constexpr int32_t kVectorsPerThread = 4;
inline constexpr int32_t kVectorsPerCta = kMoveThreads * kVectorsPerThread;
inline constexpr int32_t kCtasPerSm = 4;

// The vector at a global address, zeros where it is 0. What is moved is read once and pushes
// nothing out of L1, where the indices are. The condition is a predicate: no branch parts a
// thread's loads.
template <typename Vector>
__device__ __forceinline__ Vector LoadOrZeros(uint64_t address) {
  return address == 0 ? Vector{} : __ldg(reinterpret_cast<const Vector*>(address));
}
template <>
__device__ __forceinline__ uint4 LoadOrZeros<uint4>(uint64_t address) {
  uint4 value = {0, 0, 0, 0};
  asm volatile(
      "{\n"
      "  .reg .pred there;\n"
      "  setp.ne.u64 there, %4, 0;\n"
      "  @there ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(address));
  return value;
}

__device__ __forceinline__ void Store(uint64_t address, uint4 value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void Store(uint64_t address, uint2 value) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(value.x), "r"(value.y)
               : "memory");
}
__device__ __forceinline__ void Store(uint64_t address, uint32_t value) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void Store(uint64_t address, uint16_t value) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(address), "h"(value) : "memory");
}

}  // namespace segue::kernels::cuda
