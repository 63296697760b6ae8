// Whether a context's device is one that this build's CUDA kernels work on.
#pragma once

#include "kernels/registry.h"

namespace segue::kernels::cuda {

// Null when it is; otherwise why not.
const char* RejectsDevice(const Context& context);

// What every CUDA implementation needs, as a list of kernels wants it.
template <typename Params>
const char* NeedsCuda(const Params&, const Context& context) {
  return RejectsDevice(context);
}

}  // namespace segue::kernels::cuda
