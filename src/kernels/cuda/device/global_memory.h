// Global memory by address, with the cache hints that data moved once and data kept want.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

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

// The same on a condition of its own: addresses that differ by a constant share a register.
__device__ __forceinline__ uint4 LoadIf(bool there, uint64_t address) {
  uint4 value = {0, 0, 0, 0};
  asm volatile(
      "{\n"
      "  .reg .pred there;\n"
      "  setp.ne.s32 there, %5, 0;\n"
      "  @there ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(address), "r"(there ? 1 : 0));
  return value;
}

// Sends for the bytes at an address, and for the page's translation, without waiting for them.
__device__ __forceinline__ void Prefetch(uint64_t address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// A vector that is read once and may be written later by the same thread.
__device__ __forceinline__ uint4 LoadOnce(const void* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
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

// A value that the next launch reads again: it stays in L2 while other data streams through.
// Nothing writes it while the kernel runs.
__device__ __forceinline__ uint32_t LoadKept(const uint32_t* from) {
  uint32_t value;
  asm volatile(
      "{\n"
      "  .reg .b64 keep;\n"
      "  createpolicy.fractional.L2::evict_last.b64 keep, 1.0;\n"
      "  ld.global.nc.L2::cache_hint.b32 %0, [%1], keep;\n"
      "}"
      : "=r"(value)
      : "l"(from));
  return value;
}
__device__ __forceinline__ uint64_t LoadKept(const uint64_t* from) {
  uint64_t value;
  asm volatile(
      "{\n"
      "  .reg .b64 keep;\n"
      "  createpolicy.fractional.L2::evict_last.b64 keep, 1.0;\n"
      "  ld.global.nc.L2::cache_hint.b64 %0, [%1], keep;\n"
      "}"
      : "=l"(value)
      : "l"(from));
  return value;
}

}  // namespace segue::kernels::device
