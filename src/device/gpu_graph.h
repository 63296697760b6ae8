// Work recorded once and launched many times. In a build without CUDA every call is an error that
// says so.
#pragma once

#include <cstdint>
#include <functional>

#include "device/gpu_handle.h"
#include "device/gpu_stream.h"
#include "segue/status.h"

namespace segue {

void DestroyGpuGraph(void* executable);

// An executable graph. Belongs to the device that was current when it was recorded. Launches of one
// graph run one after another, also on different streams. Destruction while a launch is running is
// allowed; the memory the launch uses must still outlive it.
class GpuGraph {
 public:
  // What CUDA calls outside the stream a capture refuses (cudaStreamCaptureMode).
  enum class Mode : uint8_t {
    // Calls of this thread that could not be part of a graph (allocation, say). Other threads are
    // free to allocate, launch and wait for their streams; waiting for the whole device
    // (cudaDeviceSynchronize) on any thread spoils the capture.
    kThreadLocal,
    // None: for code that loads a module on its first launch.
    kRelaxed,
  };
  // What a graph consists of. A block without copies shows it here.
  struct Nodes {
    int64_t kernels = 0;
    int64_t copies = 0;
    int64_t memsets = 0;
    int64_t others = 0;  // event records and waits, host calls, empty nodes
  };

  // Records what `enqueue` puts on the stream, which must not be the legacy default stream (null),
  // and makes it executable. Nothing runs, and nothing of what is recorded may be waited for inside
  // `enqueue`. Device memory that kernels use is recorded by address and must stay where it is.
  //
  // Errors: what `enqueue` returned; a call inside it that no graph can hold, a stream of the
  // capture that was not joined again, an empty capture (kUnsupported, or kOutOfMemory where the
  // driver says so). However it fails, the capture has ended, nothing is left behind and the stream
  // works as before: the caller may run the same work eagerly.
  static Result<GpuGraph> Capture(const GpuStream& stream, const std::function<Status()>& enqueue,
                                  Mode mode = Mode::kThreadLocal);

  // Puts what the graph needs on the device, so that the first launch is as fast as the others.
  Status Upload(const GpuStream& stream) const;
  // Enqueues the whole graph.
  Status Launch(const GpuStream& stream) const;

  const Nodes& nodes() const { return nodes_; }

 private:
  GpuGraph(void* executable, const Nodes& nodes) : handle_(executable), nodes_(nodes) {}
  GpuHandle<DestroyGpuGraph> handle_;
  Nodes nodes_;
};

}  // namespace segue
