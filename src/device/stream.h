// Where and in which order operations run. Every launch takes one, explicitly.
#pragma once

#include "device/device.h"
#include "device/thread_pool.h"

namespace segue {

// A value: on the CPU it names the thread pool that runs operations at once; on CUDA it names a
// cudaStream_t, held as an opaque pointer so that no CUDA header reaches the layers above.
class Stream {
 public:
  // Precondition: `pool` outlives every copy of the stream.
  static Stream Cpu(ThreadPool& pool) {
    Stream stream;
    stream.pool_ = &pool;
    return stream;
  }
  static Stream Cuda(void* cuda_stream) {
    Stream stream;
    stream.kind_ = DeviceKind::kCuda;
    stream.cuda_stream_ = cuda_stream;
    return stream;
  }

  DeviceKind device() const { return kind_; }
  // Precondition: device() == kCpu.
  ThreadPool& pool() const { return *pool_; }
  // Precondition: device() == kCuda.
  void* cuda_stream() const { return cuda_stream_; }

 private:
  DeviceKind kind_ = DeviceKind::kCpu;
  ThreadPool* pool_ = nullptr;
  void* cuda_stream_ = nullptr;
};

}  // namespace segue
