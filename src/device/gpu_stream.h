// Streams and events of a GPU: who owns them and who waits for whom. In a build without CUDA every
// call is an error that says so.
#pragma once

#include "device/gpu_handle.h"
#include "device/stream.h"
#include "segue/status.h"

namespace segue {

// Destroy functions of the handles below.
void DestroyGpuStream(void* stream);
void DestroyGpuEvent(void* event);

// A point in the order of a stream's work. Belongs to the device that was current when it was made.
// Moved from, it holds nothing and only destruction and assignment are allowed. Calls from several
// threads are safe as long as one of them at a time records.
class GpuEvent {
 public:
  // Timing costs a microsecond or two a record; events that only order work go without.
  enum class Timing : bool { kNo, kYes };

  static Result<GpuEvent> Create(Timing timing = Timing::kNo);

  // Enqueues the event; a later Record moves it. Allowed during a capture, where it orders streams
  // of the capture and must not be queried or waited for by the host.
  Status Record(void* stream) const;
  // Whether all work in front of the last Record is done; true for an event never recorded. Errors:
  // a failure of that work, which CUDA reports late (kUnsupported).
  Result<bool> Query() const;
  // Blocks the calling thread until then.
  Status Synchronize() const;

  void* get() const { return handle_.get(); }

 private:
  explicit GpuEvent(void* event) : handle_(event) {}
  GpuHandle<DestroyGpuEvent> handle_;
};

// Milliseconds from one recorded event to a later one, both made with Timing::kYes and done.
Result<float> ElapsedMs(const GpuEvent& begin, const GpuEvent& end);

// A stream that never waits for the legacy default stream. Belongs to the device that was current
// when it was made. Destruction lets enqueued work finish without waiting for it: memory that the
// work uses must outlive it, so owners of such memory synchronize first.
class GpuStream {
 public:
  static Result<GpuStream> Create();

  void* get() const { return handle_.get(); }
  // What a launch takes.
  Stream stream() const { return Stream::Cuda(handle_.get()); }

  // Blocks the calling thread until everything enqueued is done.
  Status Synchronize() const;
  // Work enqueued from now on starts after the event's last Record is reached; the host does not
  // wait.
  Status Wait(const GpuEvent& event) const;

 private:
  explicit GpuStream(void* stream) : handle_(stream) {}
  GpuHandle<DestroyGpuStream> handle_;
};

}  // namespace segue
