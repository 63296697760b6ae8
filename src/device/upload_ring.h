// Host memory from which copies to a GPU are enqueued.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/span.h"
#include "device/device.h"
#include "device/gpu_stream.h"
#include "segue/status.h"

namespace segue {

// Page-locked slots used in turn, each with an event behind its last copy, so that memory that a
// copy still reads is never written. A caller who is as many uploads ahead of the GPU waits for the
// oldest of them (for that copy, not for the stream). Not thread-safe. Belongs to the device that
// is current at its first use.
class UploadRing {
 public:
  static constexpr int kSlots = 4;

  UploadRing();  // of PinnedMemory
  // Of fewer slots than kSlots where a caller needs less room. Precondition: `pinned` is
  // page-locked host memory and outlives the ring; 1 <= slots <= kSlots.
  explicit UploadRing(DeviceMemory& pinned, int slots = kSlots) : pinned_(&pinned), count_(slots) {}
  ~UploadRing();  // waits for copies in flight
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // Makes every slot at least this large, so that Acquire need not.
  Status Reserve(int64_t bytes);

  // The next slot's memory, aligned as the memory is (PinnedMemory: to a page);
  // contents are arbitrary. Valid until Upload.
  Result<void*> Acquire(int64_t bytes);

  struct Copy {
    int64_t from = 0;  // offset into the acquired memory
    void* to = nullptr;
    int64_t bytes = 0;
  };
  // Enqueues copies out of the acquired memory.
  Status Upload(Span<const Copy> copies, void* stream);

 private:
  struct Slot {
    void* memory = nullptr;
    int64_t bytes = 0;
    std::optional<GpuEvent> event;
    bool in_flight = false;
  };
  Status Grow(Slot& slot, int64_t bytes);

  DeviceMemory* pinned_;
  int count_;  // slots in use
  std::array<Slot, kSlots> slots_;
  int next_ = 0;
};

}  // namespace segue
