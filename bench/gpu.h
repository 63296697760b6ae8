// The little of CUDA that measuring needs: memory, graphs, events, and two kernels. In a build
// without CUDA every call is an error that says so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "segue/status.h"

namespace segue::bench {

// What a report says of a GPU.
struct GpuIdentity {
  std::string name;    // "NVIDIA H200"
  std::string driver;  // "580.159.04", or the CUDA version it brings where NVML is absent
  std::string cuda;    // of the runtime, "13.0"
};

// The current device. Error (kUnsupported): no CUDA in this build, no driver, no device.
Result<GpuIdentity> IdentifyGpu();

// Device memory; frees itself.
class GpuBuffer {
 public:
  // Errors: kOutOfMemory with the size.
  static Result<GpuBuffer> Allocate(int64_t bytes);

  void* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* pointer) const;
  };
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
};

// A stream of its own, so that captures and launches meet nobody else's.
class GpuStream {
 public:
  static Result<GpuStream> Create();
  void* get() const { return stream_.get(); }  // cudaStream_t

 private:
  struct Destroy {
    void operator()(void* stream) const;
  };
  std::unique_ptr<void, Destroy> stream_;
};

// What was enqueued during a capture, to be launched as one.
class GpuGraph {
 public:
  static Result<GpuGraph> Capture(const GpuStream& stream,
                                  const std::function<Status(void* stream)>& enqueue);
  Status Launch(const GpuStream& stream) const;

 private:
  struct Destroy {
    void operator()(void* executable) const;
  };
  std::unique_ptr<void, Destroy> executable_;
};

// A point in a stream, with its time.
class GpuEvent {
 public:
  static Result<GpuEvent> Create();
  Status Record(const GpuStream& stream) const;
  // Waits for the host until the stream has come here.
  Status Wait() const;
  // Microseconds from `earlier`; both were waited for.
  Result<double> Since(const GpuEvent& earlier) const;

 private:
  struct Destroy {
    void operator()(void* event) const;
  };
  std::unique_ptr<void, Destroy> event_;
};

Status Upload(void* device, const void* host, int64_t bytes);
Status Download(void* host, const void* device, int64_t bytes);
// `rows` pieces of `row_bytes`, `pitch` bytes apart on the device, one after the other here.
Status DownloadRows(void* host, const void* device, int64_t rows, int64_t row_bytes, int64_t pitch);
Status FillBytes(void* device, int value, int64_t bytes);
Status SynchronizeGpu();

// `count` bfloat16 values, normally distributed, from a counter-based generator.
Status FillNormal(void* device, int64_t count, uint64_t seed, const GpuStream& stream);
// How many of [rows, row_elements] bfloat16 values, rows `row_stride` apart, are NaN or infinite.
Result<int64_t> CountNonFinite(const void* device, int64_t rows, int64_t row_elements,
                               int64_t row_stride, const GpuStream& stream);

}  // namespace segue::bench
