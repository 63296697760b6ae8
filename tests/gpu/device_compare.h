// Comparing device memory where it is, for tests that launch a kernel thousands of times.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace segue::kernels {

// In device memory.
struct Differences {
  uint32_t words = 0;             // that differed, over all comparisons
  uint32_t first_run = 1u << 31;  // the lowest number of a run in which one did
};

// Enqueues a comparison of `bytes` bytes, a multiple of 4, of run number `run`.
cudaError_t CompareOnDevice(const void* a, const void* b, int64_t bytes, uint32_t run,
                            Differences* into, cudaStream_t stream);

}  // namespace segue::kernels
