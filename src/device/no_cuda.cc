// Linked in place of the files that call CUDA where no CUDA toolkit was found.
#include "device/cuda_memory.h"
#include "device/device.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"
#include "device/gpu_stream.h"
#include "device/growing_memory.h"

namespace segue {
namespace {

Error NoCuda(const char* operation) {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = "",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda', which needs nvcc"};
}

}  // namespace

Result<std::vector<DeviceInfo>> CudaDevices() { return NoCuda("list CUDA devices"); }

Result<GpuTraits> CurrentGpuTraits() { return NoCuda("ask the GPU"); }

Status SetCurrentDevice(int) { return NoCuda("choose a GPU"); }

Result<int> CurrentDeviceIndex() { return NoCuda("ask for the GPU"); }

Status EnablePeerAccess(int) { return NoCuda("let GPUs reach each other"); }

Result<GpuMemoryInfo> FreeAndTotal() { return NoCuda("ask the GPU for its memory"); }

Result<GpuMemoryInfo> FreeAndTotal(int) { return NoCuda("ask the GPU for its memory"); }

Status SetToZero(void*, int64_t, void*) { return NoCuda("set device memory to zero"); }

Status CopyPieces(const DevicePieces&, const DevicePieces&, int64_t, int64_t, void*) {
  return NoCuda("copy device memory");
}

Status SetPiecesToZero(const DevicePieces&, int64_t, int64_t, void*) {
  return NoCuda("set device memory to zero");
}

Status SetToMinusInfinity(float*, int64_t, void*) { return NoCuda("set device memory"); }

Status Upload(void*, const void*, int64_t, void*) { return NoCuda("upload to the GPU"); }

Status Download(void*, const void*, int64_t, void*) { return NoCuda("read device memory"); }

Status ReadBack(void*, const void*, int64_t, void*) { return NoCuda("read device memory"); }

Result<bool> IsCapturing(void*) { return NoCuda("ask a stream"); }

void* CudaMemory::Allocate(int64_t) { return nullptr; }

void CudaMemory::Free(void*) {}

GrowingMemory::~GrowingMemory() = default;

void* GrowingMemory::Allocate(int64_t) { return nullptr; }

bool GrowingMemory::Extend(void*, int64_t) { return false; }

void GrowingMemory::Free(void*) {}

void* PinnedMemory::Allocate(int64_t) { return nullptr; }

void PinnedMemory::Free(void*) {}

// There is never one to destroy.
void DestroyGpuStream(void*) {}

void DestroyGpuEvent(void*) {}

void DestroyGpuGraph(void*) {}

Result<GpuEvent> GpuEvent::Create(Timing) { return NoCuda("make an event"); }

Status GpuEvent::Record(void*) const { return NoCuda("record an event"); }

Result<bool> GpuEvent::Query() const { return NoCuda("ask an event"); }

Status GpuEvent::Synchronize() const { return NoCuda("wait for an event"); }

Result<float> ElapsedMs(const GpuEvent&, const GpuEvent&) { return NoCuda("time events"); }

Result<GpuStream> GpuStream::Create() { return NoCuda("make a stream"); }

Status GpuStream::Synchronize() const { return NoCuda("wait for a stream"); }

Status GpuStream::Wait(const GpuEvent&) const { return NoCuda("order streams"); }

Result<GpuGraph> GpuGraph::Capture(const GpuStream&, const std::function<Status()>&, Mode) {
  return NoCuda("capture a graph");
}

Status GpuGraph::Upload(const GpuStream&) const { return NoCuda("upload a graph"); }

Status GpuGraph::Launch(const GpuStream&) const { return NoCuda("launch a graph"); }

}  // namespace segue
