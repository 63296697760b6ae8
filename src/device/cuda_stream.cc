#include <cuda_runtime_api.h>

#include "device/cuda_check.h"
#include "device/gpu_stream.h"

namespace segue {
namespace {

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

void DestroyGpuStream(void* stream) { cudaStreamDestroy(StreamOf(stream)); }

void DestroyGpuEvent(void* event) { cudaEventDestroy(EventOf(event)); }

Result<GpuEvent> GpuEvent::Create(Timing timing) {
  cudaEvent_t event = nullptr;
  const unsigned flags = timing == Timing::kYes ? cudaEventDefault : cudaEventDisableTiming;
  SEGUE_RETURN_IF_ERROR(CheckCuda("make an event", "cudaEventCreateWithFlags",
                                  cudaEventCreateWithFlags(&event, flags)));
  return GpuEvent(event);
}

Status GpuEvent::Record(void* stream) const {
  return CheckCuda("record an event", "cudaEventRecord",
                   cudaEventRecord(EventOf(handle_.get()), StreamOf(stream)));
}

Result<bool> GpuEvent::Query() const {
  const cudaError_t status = cudaEventQuery(EventOf(handle_.get()));
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no failure, but CUDA remembers it as one
    return false;
  }
  SEGUE_RETURN_IF_ERROR(CheckCuda("ask an event", "cudaEventQuery", status));
  return true;
}

Status GpuEvent::Synchronize() const {
  return CheckCuda("wait for an event", "cudaEventSynchronize",
                   cudaEventSynchronize(EventOf(handle_.get())));
}

Result<float> ElapsedMs(const GpuEvent& begin, const GpuEvent& end) {
  float ms = 0;
  SEGUE_RETURN_IF_ERROR(
      CheckCuda("time events", "cudaEventElapsedTime",
                cudaEventElapsedTime(&ms, EventOf(begin.get()), EventOf(end.get()))));
  return ms;
}

Result<GpuStream> GpuStream::Create() {
  cudaStream_t stream = nullptr;
  SEGUE_RETURN_IF_ERROR(CheckCuda("make a stream", "cudaStreamCreateWithFlags",
                                  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  return GpuStream(stream);
}

Status GpuStream::Synchronize() const {
  return CheckCuda("wait for a stream", "cudaStreamSynchronize",
                   cudaStreamSynchronize(StreamOf(handle_.get())));
}

Status GpuStream::Wait(const GpuEvent& event) const {
  return CheckCuda("order streams", "cudaStreamWaitEvent",
                   cudaStreamWaitEvent(StreamOf(handle_.get()), EventOf(event.get()), 0));
}

}  // namespace segue
