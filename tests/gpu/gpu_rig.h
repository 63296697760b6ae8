// What tests on a GPU begin and end with.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu/gpu_memory.h"
#include "kernels/registry.h"

// In a test or a fixture's SetUp: reports it as skipped where there is no GPU that builds have code
// for.
#define SEGUE_SKIP_WITHOUT_GPU()                                                 \
  if (const std::string no_gpu = segue::kernels::NoGpuReason(); !no_gpu.empty()) \
  GTEST_SKIP() << no_gpu

namespace segue {

// For comparison with "", which shows what went wrong.
inline std::string Text(const Status& status) {
  return status.ok() ? "" : status.error().Message();
}

namespace kernels {

// Waits, and returns what the device complains about.
inline std::string Finish() {
  const cudaError_t status = cudaDeviceSynchronize();
  return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

inline Context OnGpu(bool reference_only = false, void* stream = nullptr) {
  return {.stream = Stream::Cuda(stream), .reference_only = reference_only};
}

}  // namespace kernels
}  // namespace segue
