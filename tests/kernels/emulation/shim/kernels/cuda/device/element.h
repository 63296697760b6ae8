// The host's stand-in for src/kernels/cuda/device/element.h.
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
  static uint32_t Pack(float low, float high) {
    return static_cast<uint32_t>(FloatToF16(high)) << 16 | FloatToF16(low);
  }
};

}  // namespace segue::kernels::device
