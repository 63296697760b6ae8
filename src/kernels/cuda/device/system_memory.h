// Memory that other GPUs and the host see, and the clock that all SMs share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

// What this thread wrote, and what it knows others to have written, is there for whoever acquires
// the value.
__device__ __forceinline__ void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ void StoreRelaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadRelaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// The former value; `value` is there only if that was 0.
__device__ __forceinline__ uint32_t SetIfZero(uint32_t* word, uint32_t value) {
  return atomicCAS_system(word, 0u, value);
}

// A vector that another GPU may have written since this kernel began, so not by the path of
// constants; read once.
__device__ __forceinline__ uint4 LoadPeer(const void* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

// Nanoseconds.
__device__ __forceinline__ uint64_t GlobalTimer() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

}  // namespace segue::kernels::device
