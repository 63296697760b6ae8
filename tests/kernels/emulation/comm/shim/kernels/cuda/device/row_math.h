// Stands for kernels/cuda/device/row_math.h on the host: what norms compute, the root by the host's
// own.
#pragma once

#include <cmath>

#include "kernels/cuda/device/bf16.h"

namespace segue::kernels::device {

inline float InverseDeviation(float squares, float inverse_count, float eps) {
  return 1.0f / std::sqrt(squares * inverse_count + eps);
}

template <bool kSteps>
uint32_t GateResidual(uint32_t h, uint32_t gate, uint32_t y) {
  if (kSteps) return AddPairs(h, MultiplyPairs(gate, y));
  return BFloat16::Pack(Low(h) + Low(gate) * Low(y), High(h) + High(gate) * High(y));
}

inline float Normalize(float x, float mean, float inverse) { return (x - mean) * inverse; }

template <bool kSteps>
uint32_t Modulate(float low, float high, uint32_t scale, uint32_t shift) {
  if (kSteps) {
    constexpr uint32_t kOnes = 0x3f803f80;
    return AddPairs(MultiplyPairs(BFloat16::Pack(low, high), AddPairs(kOnes, scale)), shift);
  }
  return BFloat16::Pack(low * (1.0f + Low(scale)) + Low(shift),
                        high * (1.0f + High(scale)) + High(shift));
}

template <bool kSteps>
uint32_t WeightPair(float low, float high, uint32_t weight) {
  if (kSteps) return MultiplyPairs(BFloat16::Pack(low, high), weight);
  return BFloat16::Pack(low * Low(weight), high * High(weight));
}

}  // namespace segue::kernels::device
