#include "gpu/device_compare.h"

namespace segue::kernels {
namespace {

__global__ void CompareKernel(const uint32_t* a, const uint32_t* b, int64_t words, uint32_t run,
                              Differences* into) {
  uint32_t different = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    different += a[i] != b[i] ? 1 : 0;
  }
  if (different == 0) return;
  atomicAdd(&into->words, different);
  atomicMin(&into->first_run, run);
}

}  // namespace

cudaError_t CompareOnDevice(const void* a, const void* b, int64_t bytes, uint32_t run,
                            Differences* into, cudaStream_t stream) {
  CompareKernel<<<128, 256, 0, stream>>>(static_cast<const uint32_t*>(a),
                                         static_cast<const uint32_t*>(b), bytes / 4, run, into);
  return cudaGetLastError();
}

}  // namespace segue::kernels
