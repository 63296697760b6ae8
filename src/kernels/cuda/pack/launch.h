// How the kernels of packing are launched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "device/stream.h"
#include "segue/status.h"

namespace segue::kernels::cuda {

struct Grid {
  int64_t ctas;
  int32_t threads;  // of a CTA
  const Stream& stream;
  // The kernel may be started while the one before it ends; it waits by itself
  // (device/grid_order.h). Hides some of a microsecond a launch.
  bool overlaps = false;
};

// Errors: more CTAs than CUDA takes; a launch that it refuses.
template <typename... Parameters, typename... Arguments>
Status Enqueue(const char* operation, void (*kernel)(Parameters...), const Grid& grid,
               const Arguments&... arguments) {
  constexpr int64_t kMaxCtas = 0x7fffffff;
  if (grid.ctas > kMaxCtas) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = operation,
                 .argument = "size",
                 .got = std::to_string(grid.ctas) + " CTAs",
                 .wanted = "at most 2^31 - 1"};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<uint32_t>(grid.ctas));
  config.blockDim = dim3(static_cast<uint32_t>(grid.threads));
  config.stream = static_cast<cudaStream_t>(grid.stream.cuda_stream());
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = grid.overlaps ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = operation,
               .argument = "launch",
               .got = cudaGetErrorString(status),
               .wanted = "a working CUDA device"};
}

}  // namespace segue::kernels::cuda
