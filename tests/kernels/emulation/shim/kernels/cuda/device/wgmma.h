// The host's stand-in for src/kernels/cuda/device/wgmma.h.
#pragma once

#include <type_traits>

#include "kernels/cuda/device/element.h"
#include "kernels/emulation/machine.h"

namespace segue::kernels::device {

inline void WgmmaFence() {}
inline void WgmmaCommit() { emulation::Machine::current().Commit(); }
template <int kUnfinished>
void WgmmaWait() {
  emulation::Machine::current().WaitForProducts(kUnfinished);
}
template <int kCount>
void FenceRegisters(float (&)[kCount]) {}

template <class Element, int kColumns>
struct Wgmma {
  static constexpr bool kFloat16 = std::is_same_v<Element, Float16>;
  static void Shared(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int accumulate) {
    emulation::Machine::current().Issue({d, nullptr, a, b, kColumns, accumulate != 0, kFloat16});
  }
  static void Registers(float (&d)[kColumns / 2], const uint32_t* a, uint64_t b) {
    emulation::Machine::current().Issue({d, a, 0, b, kColumns, true, kFloat16});
  }
};

}  // namespace segue::kernels::device
