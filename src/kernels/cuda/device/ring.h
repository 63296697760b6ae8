// Rings of slots in shared memory, each slot with a full and an empty barrier.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

// The position in a ring of kStages slots: parity is that of the slot's present phase.
template <uint32_t kStages>
struct RingPosition {
  uint32_t stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace segue::kernels::device
