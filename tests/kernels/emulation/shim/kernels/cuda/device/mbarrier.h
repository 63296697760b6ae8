// The host's stand-in for src/kernels/cuda/device/mbarrier.h.
#pragma once

#include "kernels/cuda/device/ptx.h"

namespace segue::kernels::device {

inline void RandomDelay() {}  // the machine has its own
inline void BarrierInit(uint64_t* barrier, uint32_t count) {
  emulation::Machine::current().InitBarrier(barrier, count);
}
inline void FenceBarrierInit() {}
inline void BarrierArrive(uint64_t* barrier) { emulation::Machine::current().Arrive(barrier, 0); }
inline void BarrierArriveExpect(uint64_t* barrier, uint32_t bytes) {
  emulation::Machine::current().Arrive(barrier, bytes);
}
inline void BarrierWait(uint64_t* barrier, uint32_t parity) {
  emulation::Machine::current().WaitForPhase(barrier, parity);
}

}  // namespace segue::kernels::device
