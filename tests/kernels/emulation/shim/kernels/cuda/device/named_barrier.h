// The host's stand-in for src/kernels/cuda/device/named_barrier.h: no configuration emulated here
// takes turns.
#pragma once

#include "kernels/emulation/machine.h"

namespace segue::kernels::device {

inline void NamedBarrierSync(uint32_t, uint32_t) {
  emulation::Machine::current().Fail("a named barrier");
}
inline void NamedBarrierArrive(uint32_t, uint32_t) {
  emulation::Machine::current().Fail("a named barrier");
}

}  // namespace segue::kernels::device
