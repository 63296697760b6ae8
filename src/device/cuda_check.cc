#include "device/cuda_check.h"

namespace segue {

Error CudaError(const char* operation, const char* call, cudaError_t status) {
  (void)cudaGetLastError();
  return {.code = status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory
                                                      : ErrorCode::kUnsupported,
          .operation = operation,
          .argument = call,
          .got = cudaGetErrorString(status),
          .wanted = "a CUDA driver and a working device"};
}

CurrentDevice::CurrentDevice(int device) {
  status_ = cudaGetDevice(&former_);
  if (status_ == cudaSuccess) status_ = cudaSetDevice(device);
}

CurrentDevice::~CurrentDevice() {
  if (status_ == cudaSuccess) cudaSetDevice(former_);
}

}  // namespace segue
