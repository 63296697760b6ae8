#include "device/upload_ring.h"

#include <algorithm>
#include <string>
#include <utility>

#include "device/cuda_memory.h"
#include "device/gpu.h"

namespace segue {
namespace {

DeviceMemory& SharedPinnedMemory() {
  static PinnedMemory memory;
  return memory;
}

}  // namespace

UploadRing::UploadRing() : UploadRing(SharedPinnedMemory()) {}

UploadRing::~UploadRing() {
  for (Slot& slot : slots_) {
    if (slot.in_flight) (void)slot.event->Synchronize();
    if (slot.memory != nullptr) pinned_->Free(slot.memory);
  }
}

// Precondition: nothing reads the slot.
Status UploadRing::Grow(Slot& slot, int64_t bytes) {
  if (!slot.event) {
    SEGUE_ASSIGN_OR_RETURN(GpuEvent event, GpuEvent::Create());
    slot.event = std::move(event);
  }
  if (slot.bytes >= bytes) return {};
  // Doubling bounds how often lengths that keep growing pay for it.
  const int64_t size = std::max(bytes, 2 * slot.bytes);
  void* memory = pinned_->Allocate(size);
  if (memory == nullptr) {
    return Error{.code = ErrorCode::kOutOfMemory,
                 .operation = "upload to the GPU",
                 .argument = "page-locked host memory",
                 .got = "a refused allocation",
                 .wanted = std::to_string(size) + " bytes"};
  }
  if (slot.memory != nullptr) pinned_->Free(slot.memory);
  slot.memory = memory;
  slot.bytes = size;
  return {};
}

Status UploadRing::Reserve(int64_t bytes) {
  for (int i = 0; i < count_; ++i) {
    if (const Result<void*> memory = Acquire(bytes); !memory) return memory.error();
  }
  return {};
}

Result<void*> UploadRing::Acquire(int64_t bytes) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % count_;
  if (slot.in_flight) {
    SEGUE_RETURN_IF_ERROR(slot.event->Synchronize());
    slot.in_flight = false;
  }
  SEGUE_RETURN_IF_ERROR(Grow(slot, bytes));
  return slot.memory;
}

Status UploadRing::Upload(Span<const Copy> copies, void* stream) {
  Slot& slot = slots_[(next_ + count_ - 1) % count_];
  Status copied;
  for (const Copy& copy : copies) {
    if (!copied.ok()) break;
    copied = segue::Upload(copy.to, static_cast<const char*>(slot.memory) + copy.from, copy.bytes,
                           stream);
  }
  // Even behind a failure: earlier copies may be on their way.
  Status recorded = slot.event->Record(stream);
  slot.in_flight = recorded.ok();
  SEGUE_RETURN_IF_ERROR(std::move(copied));
  return recorded;
}

}  // namespace segue
