// How the files of this module that call CUDA report errors.
#pragma once

#include <cuda_runtime_api.h>

#include "segue/status.h"

namespace segue {

// The error of a CUDA call. Also takes it out of CUDA's own memory of the last error, where the
// next check behind a launch would find it and blame the launch.
Error CudaError(const char* operation, const char* call, cudaError_t status);

inline Status CheckCuda(const char* operation, const char* call, cudaError_t status) {
  if (status == cudaSuccess) return {};
  return CudaError(operation, call, status);
}

// Makes a device current and puts the former one back.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  // Of making it current.
  cudaError_t status() const { return status_; }

 private:
  int former_ = 0;
  cudaError_t status_ = cudaSuccess;
};

}  // namespace segue
