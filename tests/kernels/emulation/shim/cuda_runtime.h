// Stands for the CUDA runtime's header when the attention kernel is compiled for the host:
// keywords, vector types and warp exchanges.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/emulation/machine.h"

#define __device__
#define __forceinline__ inline

struct int3 {
  int x, y, z;
};
struct int4 {
  int x, y, z, w;
};
struct uint4 {
  uint32_t x, y, z, w;
};

struct EmulatedThreadIndex {
  struct X {
    operator uint32_t() const {  // NOLINT: reads like CUDA's
      return static_cast<uint32_t>(segue::kernels::emulation::Machine::current().thread());
    }
  } x;
};
struct EmulatedIndex {
  uint32_t x = 0;
};
inline EmulatedThreadIndex threadIdx;
inline EmulatedIndex blockIdx;
inline EmulatedIndex gridDim;

using std::max;
using std::min;

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}

template <typename T>
T EmulatedShuffle(int kind, T value, int from) {
  static_assert(sizeof(T) == 4);
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const uint32_t got = segue::kernels::emulation::Machine::current().Exchange(kind, bits)[from];
  std::memcpy(&value, &got, 4);
  return value;
}
template <typename T>
T __shfl_sync(uint32_t, T value, int from) {
  return EmulatedShuffle(1, value, from % 32);
}
template <typename T>
T __shfl_xor_sync(uint32_t, T value, int mask) {
  return EmulatedShuffle(2, value, static_cast<int>(threadIdx.x) % 32 ^ mask);
}
inline uint32_t __ballot_sync(uint32_t, bool predicate) {
  uint32_t result = 0;
  uint32_t lane = 0;
  for (const uint32_t x : segue::kernels::emulation::Machine::current().Exchange(3, predicate)) {
    result |= x << lane++;
  }
  return result;
}
inline int __any_sync(uint32_t mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, bool predicate) {
  return __ballot_sync(mask, !predicate) == 0;
}
inline int __clz(int value) { return std::countl_zero(static_cast<uint32_t>(value)); }
inline int __ffs(int value) {
  return value == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(value)) + 1;
}
inline uint32_t __reduce_or_sync(uint32_t, uint32_t value) {
  uint32_t result = 0;
  for (const uint32_t x : segue::kernels::emulation::Machine::current().Exchange(4, value)) {
    result |= x;
  }
  return result;
}
inline int __reduce_max_sync(uint32_t, int value) {
  const auto& all =
      segue::kernels::emulation::Machine::current().Exchange(5, static_cast<uint32_t>(value));
  int result = static_cast<int>(all[0]);
  for (const uint32_t x : all) result = std::max(result, static_cast<int>(x));
  return result;
}
inline void __syncwarp() { segue::kernels::emulation::Machine::current().Exchange(6, 0); }
inline int atomicAdd(int* pointer, int value) {
  const int before = *pointer;
  *pointer += value;
  return before;
}
inline void __threadfence() {}
