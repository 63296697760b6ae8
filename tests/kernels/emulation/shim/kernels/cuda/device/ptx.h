// The host's stand-in for src/kernels/cuda/device/ptx.h.
#pragma once

#include <cuda_runtime.h>

#include <limits>

namespace segue::kernels::device {

inline uint32_t SharedAddress(const void* pointer) {
  return emulation::Machine::current().SharedOffset(pointer);
}
inline float Exp2(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}
inline float Log2(float x) { return std::log2(x); }
inline void StoreMatrices(uint32_t address, const uint32_t (&matrices)[4]) {
  const auto rows = emulation::Machine::current().Exchange(7, address);
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t m = 0; m < 4; ++m) {
    const uint32_t to = rows[8 * m + lane / 4] + lane % 4 * 4;
    std::memcpy(emulation::Machine::current().SharedAt(to), &matrices[m], 4);
  }
}
inline uint4 LoadShared128(uint32_t address) {
  uint4 value{};
  std::memcpy(&value, emulation::Machine::current().SharedAt(address), 16);
  return value;
}

}  // namespace segue::kernels::device
