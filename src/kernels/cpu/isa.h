// Which instruction sets this processor and this build have.
#pragma once

#include "kernels/check.h"
#include "kernels/registry.h"

namespace segue::kernels::cpu {

// Null when code for `isa` can run here on the context's stream; otherwise the reason it cannot.
const char* MissingIsa(CpuIsa isa, const Context& context);

template <typename Params>
const char* NeedsAvx2(const Params&, const Context& context) {
  return MissingIsa(CpuIsa::kAvx2, context);
}

template <typename Params>
const char* NeedsAvx512(const Params&, const Context& context) {
  return MissingIsa(CpuIsa::kAvx512, context);
}

}  // namespace segue::kernels::cpu
