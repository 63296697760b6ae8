// Instruction sets that CPU operations are written for.
#pragma once

#include <cstdint>

namespace segue::kernels {

enum class CpuIsa : uint8_t {
  kAvx2,    // with FMA and F16C: every x86 processor since 2013 (Intel) or 2015 (AMD)
  kAvx512,  // F, BW, DQ and VL
};

}  // namespace segue::kernels
