// Stands for kernels/cuda/device/element.h on the host.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace segue::kernels::device {

struct BFloat16 {
  static uint32_t Pack(float low, float high) {
    return static_cast<uint32_t>(FloatToBF16(high)) << 16 | FloatToBF16(low);
  }
};
struct Float16 {
  static float Widen(uint16_t bits) { return F16ToFloat(bits); }
};

}  // namespace segue::kernels::device
