// What the files that are linked where the build has no CUDA say.
#pragma once

#include "segue/status.h"

namespace segue::kernels {

inline Error NoCuda(const char* operation, const char* argument = "stream") {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = argument,
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda'"};
}

}  // namespace segue::kernels
