// Bytes from here to there: what packing can at best be as fast as.
#pragma once

#include <cstdint>

#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::kernels {

// Memory of the context's device; the two do not overlap.
struct CopyParams {
  const void* from = nullptr;  // [bytes]; on a GPU a multiple of 16
  void* to = nullptr;          // [bytes]; on a GPU a multiple of 16
  int64_t bytes = 0;           // on a GPU a multiple of 16
};

// Errors: null pointers; what is no multiple of 16 on a GPU; a refused launch.
Status CopyBytes(const CopyParams& params, const Context& context);

}  // namespace segue::kernels
