#include "device/gpu.h"

#include <cuda_runtime_api.h>

#include "device/cuda_check.h"

namespace segue {
namespace {

constexpr const char* kOperation = "call the GPU";

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

Status Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, void* stream) {
  if (bytes == 0) return {};
  return CheckCuda(kOperation, "cudaMemcpyAsync",
                   cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, StreamOf(stream)));
}

}  // namespace

Result<GpuTraits> CurrentGpuTraits() {
  int device = 0;
  SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaGetDevice", cudaGetDevice(&device)));
  constexpr cudaDeviceAttr kAttributes[3] = {cudaDevAttrComputeCapabilityMajor,
                                             cudaDevAttrComputeCapabilityMinor,
                                             cudaDevAttrMultiProcessorCount};
  int values[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaDeviceGetAttribute",
                                    cudaDeviceGetAttribute(&values[i], kAttributes[i], device)));
  }
  return GpuTraits{.compute_capability = 10 * values[0] + values[1], .multiprocessors = values[2]};
}

Status SetCurrentDevice(int index) {
  return CheckCuda(kOperation, "cudaSetDevice", cudaSetDevice(index));
}

Result<int> CurrentDeviceIndex() {
  int device = 0;
  SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaGetDevice", cudaGetDevice(&device)));
  return device;
}

Status EnablePeerAccess(int peer) {
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
    return {};
  }
  return CheckCuda(kOperation, "cudaDeviceEnablePeerAccess", status);
}

Result<GpuMemoryInfo> FreeAndTotal() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  SEGUE_RETURN_IF_ERROR(
      CheckCuda(kOperation, "cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes)));
  return GpuMemoryInfo{.free_bytes = static_cast<int64_t>(free_bytes),
                       .total_bytes = static_cast<int64_t>(total_bytes)};
}

Result<GpuMemoryInfo> FreeAndTotal(int device) {
  const CurrentDevice current(device);
  SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaSetDevice", current.status()));
  return FreeAndTotal();
}

Status SetToZero(void* memory, int64_t bytes, void* stream) {
  return CheckCuda(kOperation, "cudaMemsetAsync",
                   cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), StreamOf(stream)));
}

Status CopyPieces(const DevicePieces& to, const DevicePieces& from, int64_t bytes, int64_t count,
                  void* stream) {
  if (bytes == 0 || count == 0) return {};
  return CheckCuda(
      kOperation, "cudaMemcpy2DAsync",
      cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.stride), from.data,
                        static_cast<size_t>(from.stride), static_cast<size_t>(bytes),
                        static_cast<size_t>(count), cudaMemcpyDeviceToDevice, StreamOf(stream)));
}

Status SetPiecesToZero(const DevicePieces& pieces, int64_t bytes, int64_t count, void* stream) {
  if (bytes == 0 || count == 0) return {};
  return CheckCuda(
      kOperation, "cudaMemset2DAsync",
      cudaMemset2DAsync(pieces.data, static_cast<size_t>(pieces.stride), 0,
                        static_cast<size_t>(bytes), static_cast<size_t>(count), StreamOf(stream)));
}

Status SetToMinusInfinity(float* values, int64_t count, void* stream) {
  if (count == 0) return {};
  // 0xff800000, the last byte in memory first: the runtime sets bytes, but at any distance.
  constexpr int kBytes[4] = {0x00, 0x00, 0x80, 0xff};
  for (int i = 0; i < 4; ++i) {
    SEGUE_RETURN_IF_ERROR(
        CheckCuda(kOperation, "cudaMemset2DAsync",
                  cudaMemset2DAsync(reinterpret_cast<uint8_t*>(values) + i, 4, kBytes[i], 1,
                                    static_cast<size_t>(count), StreamOf(stream))));
  }
  return {};
}

Status Upload(void* to, const void* from, int64_t bytes, void* stream) {
  return Copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
}

Status Download(void* to, const void* from, int64_t bytes, void* stream) {
  return Copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
}

Status ReadBack(void* to, const void* from, int64_t bytes, void* stream) {
  SEGUE_RETURN_IF_ERROR(Download(to, from, bytes, stream));
  return CheckCuda(kOperation, "cudaStreamSynchronize", cudaStreamSynchronize(StreamOf(stream)));
}

Result<bool> IsCapturing(void* stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  SEGUE_RETURN_IF_ERROR(CheckCuda(kOperation, "cudaStreamIsCapturing",
                                  cudaStreamIsCapturing(StreamOf(stream), &capture)));
  return capture != cudaStreamCaptureStatusNone;
}

}  // namespace segue
