#include "device/cuda_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/cuda_check.h"

namespace segue {

void* CudaMemory::Allocate(int64_t bytes) {
  if (bytes < 0) return nullptr;
  const CurrentDevice current(device_);
  cudaError_t status = current.status();
  void* pointer = nullptr;
  // An allocation of nothing is a pointer of its own, as host memory gives.
  if (status == cudaSuccess) {
    status = cudaMalloc(&pointer, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  }
  if (status == cudaSuccess) return pointer;
  (void)cudaGetLastError();
  return nullptr;
}

void CudaMemory::Free(void* pointer) {
  const CurrentDevice current(device_);
  if (pointer != nullptr && current.status() == cudaSuccess) cudaFree(pointer);
}

void* PinnedMemory::Allocate(int64_t bytes) {
  if (bytes < 0) return nullptr;
  void* pointer = nullptr;
  // Portable: whichever device is current may copy.
  if (cudaHostAlloc(&pointer, static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                    cudaHostAllocPortable) == cudaSuccess) {
    return pointer;
  }
  (void)cudaGetLastError();
  return nullptr;
}

void PinnedMemory::Free(void* pointer) {
  if (pointer != nullptr) cudaFreeHost(pointer);
}

}  // namespace segue
