// What the launchers of packing share.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "device/stream.h"
#include "segue/status.h"

namespace segue::kernels::cuda {

inline cudaStream_t CudaStream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.cuda_stream());
}

// Whether the launch just made was accepted.
inline Status LaunchStatus(const char* operation) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = operation,
               .argument = "launch",
               .got = cudaGetErrorString(status),
               .wanted = "a working CUDA device"};
}

// Error where a launch would need more CTAs than CUDA takes.
inline Status CheckGrid(const char* operation, int64_t ctas) {
  constexpr int64_t kMaxCtas = 0x7fffffff;
  if (ctas <= kMaxCtas) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = operation,
               .argument = "size",
               .got = std::to_string(ctas) + " CTAs",
               .wanted = "at most 2^31 - 1"};
}

}  // namespace segue::kernels::cuda
