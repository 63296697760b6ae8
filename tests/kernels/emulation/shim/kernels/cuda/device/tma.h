// The host's stand-in for src/kernels/cuda/device/tma.h.
#pragma once

#include "kernels/cuda/device/ptx.h"

namespace segue::kernels::device {

inline constexpr uint64_t kEvictFirst = 0;
inline constexpr uint64_t kEvictLast = 0;

inline void LoadBox(uint32_t destination, const void* map, uint64_t* barrier, int3 coordinates,
                    uint64_t) {
  const int32_t at[3] = {coordinates.x, coordinates.y, coordinates.z};
  emulation::Machine::current().Load(destination, static_cast<const emulation::TensorMap*>(map),
                                     barrier, at);
}

}  // namespace segue::kernels::device
