#include "device/gpu.h"

#include <cuda_runtime_api.h>

namespace segue {
namespace {

Error CudaError(const char* call, cudaError_t status) {
  return {.code = ErrorCode::kUnsupported,
          .operation = "call the GPU",
          .argument = call,
          .got = cudaGetErrorString(status),
          .wanted = "a CUDA driver and a device"};
}

}  // namespace

Result<GpuTraits> CurrentGpuTraits() {
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return CudaError("cudaGetDevice", status);
  constexpr cudaDeviceAttr kAttributes[3] = {cudaDevAttrComputeCapabilityMajor,
                                             cudaDevAttrComputeCapabilityMinor,
                                             cudaDevAttrMultiProcessorCount};
  int values[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    status = cudaDeviceGetAttribute(&values[i], kAttributes[i], device);
    if (status != cudaSuccess) return CudaError("cudaDeviceGetAttribute", status);
  }
  return GpuTraits{.compute_capability = 10 * values[0] + values[1], .multiprocessors = values[2]};
}

Status SetToZero(void* memory, int64_t bytes, void* stream) {
  const cudaError_t status =
      cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) return CudaError("cudaMemsetAsync", status);
  return {};
}

Status CopyPieces(const DevicePieces& to, const DevicePieces& from, int64_t bytes, int64_t count,
                  void* stream) {
  if (bytes == 0 || count == 0) return {};
  const cudaError_t status = cudaMemcpy2DAsync(
      to.data, static_cast<size_t>(to.stride), from.data, static_cast<size_t>(from.stride),
      static_cast<size_t>(bytes), static_cast<size_t>(count), cudaMemcpyDeviceToDevice,
      static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) return CudaError("cudaMemcpy2DAsync", status);
  return {};
}

Status SetPiecesToZero(const DevicePieces& pieces, int64_t bytes, int64_t count, void* stream) {
  if (bytes == 0 || count == 0) return {};
  const cudaError_t status = cudaMemset2DAsync(
      pieces.data, static_cast<size_t>(pieces.stride), 0, static_cast<size_t>(bytes),
      static_cast<size_t>(count), static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) return CudaError("cudaMemset2DAsync", status);
  return {};
}

Status SetToMinusInfinity(float* values, int64_t count, void* stream) {
  if (count == 0) return {};
  // 0xff800000, the last byte in memory first: the runtime sets bytes, but at any distance.
  constexpr int kBytes[4] = {0x00, 0x00, 0x80, 0xff};
  for (int i = 0; i < 4; ++i) {
    const cudaError_t status =
        cudaMemset2DAsync(reinterpret_cast<uint8_t*>(values) + i, 4, kBytes[i], 1,
                          static_cast<size_t>(count), static_cast<cudaStream_t>(stream));
    if (status != cudaSuccess) return CudaError("cudaMemset2DAsync", status);
  }
  return {};
}

Status ReadBack(void* to, const void* from, int64_t bytes, void* stream) {
  cudaError_t status = cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                                       static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) return CudaError("cudaMemcpyAsync", status);
  status = cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) return CudaError("cudaStreamSynchronize", status);
  return {};
}

Result<bool> IsCapturing(void* stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t status = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capture);
  if (status != cudaSuccess) return CudaError("cudaStreamIsCapturing", status);
  return capture != cudaStreamCaptureStatusNone;
}

}  // namespace segue
