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
inline void StoreShared32(uint32_t address, uint32_t value) {
  std::memcpy(emulation::Machine::current().SharedAt(address), &value, 4);
}
inline uint4 LoadShared128(uint32_t address) {
  uint4 value{};
  std::memcpy(&value, emulation::Machine::current().SharedAt(address), 16);
  return value;
}

}  // namespace segue::kernels::device
