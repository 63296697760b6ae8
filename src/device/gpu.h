// What the layers above ask of a GPU without seeing a CUDA header. In a build without CUDA every
// call is an error that says so.
#pragma once

#include <cstdint>

#include "segue/status.h"

namespace segue {

struct GpuTraits {
  int32_t compute_capability = 0;  // 10 x major + minor
  int32_t multiprocessors = 0;
};

// The calling thread's current device. Error (kUnsupported): no CUDA in this build, no driver, no
// device.
Result<GpuTraits> CurrentGpuTraits();

// Makes a device the calling thread's current one. Every thread that calls the GPU has its own, and
// starts with device 0.
Status SetCurrentDevice(int index);

// The calling thread's.
Result<int> CurrentDeviceIndex();

// Lets the current device read and write another one's memory. Done already is done. Error
// (kUnsupported): the two cannot.
Status EnablePeerAccess(int peer);

struct GpuMemoryInfo {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};
// Memory of the current device, other programs' use included.
Result<GpuMemoryInfo> FreeAndTotal();
// Of another one, which leaves the current device as it is.
Result<GpuMemoryInfo> FreeAndTotal(int device);

// Enqueues zeros into device memory.
Status SetToZero(void* memory, int64_t bytes, void* stream);

// Pieces of `bytes` each, `stride` bytes from one to the next.
struct DevicePieces {
  void* data = nullptr;
  int64_t stride = 0;  // at least their length where there are several
};

// Enqueues copies of `count` pieces of `bytes` inside device memory, which may be captured.
Status CopyPieces(const DevicePieces& to, const DevicePieces& from, int64_t bytes, int64_t count,
                  void* stream);

// Enqueues zeros into `count` pieces of `bytes`.
Status SetPiecesToZero(const DevicePieces& pieces, int64_t bytes, int64_t count, void* stream);

// Enqueues -infinity into float32 values.
Status SetToMinusInfinity(float* values, int64_t count, void* stream);

// Enqueues a copy from host to device memory. From page-locked memory (PinnedMemory) it runs beside
// the host, which must leave the memory alone until the stream has passed the copy; from other
// memory the call returns when the memory has been read. Only page-locked memory may be captured.
Status Upload(void* to, const void* from, int64_t bytes, void* stream);

// The same from device to host memory; where that is not page-locked, the call waits for the copy.
Status Download(void* to, const void* from, int64_t bytes, void* stream);

// Copies device memory to the host and waits for the stream.
Status ReadBack(void* to, const void* from, int64_t bytes, void* stream);

// Whether the cudaStream_t records a graph instead of running.
Result<bool> IsCapturing(void* stream);

}  // namespace segue
