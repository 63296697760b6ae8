#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/cuda_check.h"
#include "device/upload_ring.h"

namespace segue {
namespace {

Status Check(const char* call, cudaError_t status) {
  return CheckCuda("upload to the GPU", call, status);
}

cudaEvent_t EventOf(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

UploadRing::~UploadRing() {
  for (Slot& slot : slots_) {
    if (slot.in_flight) cudaEventSynchronize(EventOf(slot.event));
    if (slot.event != nullptr) cudaEventDestroy(EventOf(slot.event));
    if (slot.memory != nullptr) cudaFreeHost(slot.memory);
  }
}

// Precondition: nothing reads the slot.
Status UploadRing::Grow(Slot& slot, int64_t bytes) {
  if (slot.event == nullptr) {
    cudaEvent_t event = nullptr;
    SEGUE_RETURN_IF_ERROR(
        Check("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    slot.event = event;
  }
  if (slot.bytes >= bytes) return {};
  // Doubling bounds how often lengths that keep growing pay for it.
  const int64_t size = std::max(bytes, 2 * slot.bytes);
  void* memory = nullptr;
  SEGUE_RETURN_IF_ERROR(Check(
      "cudaHostAlloc", cudaHostAlloc(&memory, static_cast<size_t>(size), cudaHostAllocDefault)));
  if (slot.memory != nullptr) cudaFreeHost(slot.memory);
  slot.memory = memory;
  slot.bytes = size;
  return {};
}

Status UploadRing::Reserve(int64_t bytes) {
  for (int i = 0; i < kSlots; ++i) {
    if (const Result<void*> memory = Acquire(bytes); !memory) return memory.error();
  }
  return {};
}

Result<void*> UploadRing::Acquire(int64_t bytes) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlots;
  if (slot.in_flight) {
    SEGUE_RETURN_IF_ERROR(Check("cudaEventSynchronize", cudaEventSynchronize(EventOf(slot.event))));
    slot.in_flight = false;
  }
  SEGUE_RETURN_IF_ERROR(Grow(slot, bytes));
  return slot.memory;
}

Status UploadRing::Upload(Span<const Copy> copies, void* stream) {
  Slot& slot = slots_[(next_ + kSlots - 1) % kSlots];
  cudaError_t copied = cudaSuccess;
  for (const Copy& copy : copies) {
    if (copy.bytes == 0 || copied != cudaSuccess) continue;
    copied = cudaMemcpyAsync(copy.to, static_cast<const char*>(slot.memory) + copy.from,
                             static_cast<size_t>(copy.bytes), cudaMemcpyHostToDevice,
                             static_cast<cudaStream_t>(stream));
  }
  // Even behind a failure: earlier copies may be on their way.
  const cudaError_t recorded =
      cudaEventRecord(EventOf(slot.event), static_cast<cudaStream_t>(stream));
  slot.in_flight = recorded == cudaSuccess;
  SEGUE_RETURN_IF_ERROR(Check("cudaMemcpyAsync", copied));
  return Check("cudaEventRecord", recorded);
}

}  // namespace segue
