// The host's stand-in for src/kernels/cuda/device/named_barrier.h.
#pragma once

#include "kernels/emulation/machine.h"

namespace segue::kernels::device {

inline void NamedBarrierSync(uint32_t id, uint32_t threads) {
  emulation::Machine::current().ArriveNamed(id, threads, true);
}
inline void NamedBarrierArrive(uint32_t id, uint32_t threads) {
  emulation::Machine::current().ArriveNamed(id, threads, false);
}

}  // namespace segue::kernels::device
