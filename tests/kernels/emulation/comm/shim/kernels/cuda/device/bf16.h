// Stands for kernels/cuda/device/bf16.h on the host: pairs by float32 arithmetic, rounded.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/element.h"

namespace segue::kernels::device {

inline float Widen(uint16_t bits) { return BF16ToFloat(bits); }
inline float Low(uint32_t pair) { return __uint_as_float(pair << 16); }
inline float High(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
inline uint32_t AddPairs(uint32_t a, uint32_t b) {
  return BFloat16::Pack(Low(a) + Low(b), High(a) + High(b));
}
inline uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  return BFloat16::Pack(Low(a) * Low(b), High(a) * High(b));
}

inline constexpr int kVector = 8;
inline constexpr int kPairs = kVector / 2;

struct Floats {
  float at[kVector];
};

inline uint32_t& PairAt(uint4& packed, int i) {
  return i == 0 ? packed.x : i == 1 ? packed.y : i == 2 ? packed.z : packed.w;
}
inline uint32_t PairAt(const uint4& packed, int i) { return PairAt(const_cast<uint4&>(packed), i); }

inline Floats Widen(uint4 packed) {
  Floats floats;
  for (int i = 0; i < kPairs; ++i) {
    floats.at[2 * i] = Low(PairAt(packed, i));
    floats.at[2 * i + 1] = High(PairAt(packed, i));
  }
  return floats;
}
inline uint4 Narrow(const Floats& floats) {
  return {BFloat16::Pack(floats.at[0], floats.at[1]), BFloat16::Pack(floats.at[2], floats.at[3]),
          BFloat16::Pack(floats.at[4], floats.at[5]), BFloat16::Pack(floats.at[6], floats.at[7])};
}

}  // namespace segue::kernels::device
