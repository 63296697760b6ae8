#include "model/weights/weight_lane.h"

#include <cstring>
#include <string>
#include <utility>

#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_stream.h"

namespace segue::model {
namespace {

class GpuLane : public WeightLane {
 public:
  GpuLane(GpuStream stream, DeviceMemory& staging)
      : stream_(std::move(stream)), ring_(staging, kLaneSlots) {}

  Result<uint8_t*> Acquire(int64_t bytes) override {
    SEGUE_ASSIGN_OR_RETURN(void* memory, ring_.Acquire(bytes));
    return static_cast<uint8_t*>(memory);
  }
  Status Upload(Span<const UploadRing::Copy> copies) override {
    return ring_.Upload(copies, stream_.get());
  }
  Status Finish() override { return stream_.Synchronize(); }

 private:
  GpuStream stream_;
  UploadRing ring_;
};

// Copies at once, out of one piece of memory.
class HostLane : public WeightLane {
 public:
  explicit HostLane(DeviceMemory& staging) : staging_(staging) {}
  ~HostLane() override {
    if (memory_ != nullptr) staging_.Free(memory_);
  }
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  Result<uint8_t*> Acquire(int64_t bytes) override {
    if (bytes > bytes_) {
      if (memory_ != nullptr) staging_.Free(memory_);
      memory_ = staging_.Allocate(bytes + kReadAlignment);
      bytes_ = memory_ == nullptr ? 0 : bytes;
    }
    if (memory_ == nullptr) {
      return Error{.code = ErrorCode::kOutOfMemory,
                   .operation = "load weights",
                   .argument = "host memory to read into",
                   .got = "a refused allocation",
                   .wanted = std::to_string(bytes) + " bytes"};
    }
    const auto past = reinterpret_cast<uintptr_t>(memory_) % uintptr_t{kReadAlignment};
    aligned_ = static_cast<uint8_t*>(memory_) + (past == 0 ? 0 : uintptr_t{kReadAlignment} - past);
    return aligned_;
  }
  Status Upload(Span<const UploadRing::Copy> copies) override {
    for (const UploadRing::Copy& copy : copies) {
      if (copy.bytes == 0) continue;
      std::memcpy(copy.to, aligned_ + copy.from, static_cast<size_t>(copy.bytes));
    }
    return {};
  }
  Status Finish() override { return {}; }

 private:
  DeviceMemory& staging_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  uint8_t* aligned_ = nullptr;  // inside memory_
};

DeviceMemory& SharedPinnedMemory() {
  static PinnedMemory memory;
  return memory;
}

}  // namespace

Result<std::unique_ptr<WeightLane>> MakeWeightLane(const WeightTarget& target) {
  if (target.kind == DeviceKind::kCpu) {
    DeviceMemory& staging = target.staging != nullptr ? *target.staging : HostMemory();
    return std::unique_ptr<WeightLane>(std::make_unique<HostLane>(staging));
  }
  SEGUE_RETURN_IF_ERROR(SetCurrentDevice(target.device));
  SEGUE_ASSIGN_OR_RETURN(GpuStream stream, GpuStream::Create());
  DeviceMemory& staging = target.staging != nullptr ? *target.staging : SharedPinnedMemory();
  return std::unique_ptr<WeightLane>(std::make_unique<GpuLane>(std::move(stream), staging));
}

}  // namespace segue::model
