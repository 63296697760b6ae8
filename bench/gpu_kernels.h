// Launchers of gpu_kernels.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace segue::bench {

cudaError_t LaunchFillNormal(uint16_t* values, int64_t count, uint64_t seed, cudaStream_t stream);
// Adds to *total.
cudaError_t LaunchCountNonFinite(const uint16_t* values, int64_t rows, int64_t row_elements,
                                 int64_t row_stride, unsigned long long* total,
                                 cudaStream_t stream);

}  // namespace segue::bench
