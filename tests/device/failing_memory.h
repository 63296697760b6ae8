// Memory that runs out when a test says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "device/device.h"

namespace segue {

// Hands allocations on to another memory and refuses one of them. A test of a small run does it for
// every k until nothing is refused any more, and sees each time that live() is zero in the end.
// Any number of threads may call where the other memory lets them.
class FailingMemory : public DeviceMemory {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Refuses the allocation, or extension of one, with index `fail_at`, counted from 0, and with
  // `for_good` all after it. Precondition: `memory` outlives this.
  explicit FailingMemory(DeviceMemory& memory, int64_t fail_at = kNever, bool for_good = false)
      : memory_(memory), fail_at_(fail_at), for_good_(for_good) {}

  void* Allocate(int64_t bytes) override {
    if (Refuses()) return nullptr;
    void* pointer = memory_.Allocate(bytes);
    if (pointer != nullptr) ++live_;
    return pointer;
  }
  bool Extend(void* pointer, int64_t bytes) override {
    return !Refuses() && memory_.Extend(pointer, bytes);
  }
  void Free(void* pointer) override {
    if (pointer != nullptr) --live_;
    memory_.Free(pointer);
  }

  int64_t asked() const { return asked_; }   // so far, refused ones included
  int64_t live() const { return live_; }     // of them not yet freed
  bool refused() const { return refused_; }  // whether the failure has come

 private:
  bool Refuses() {
    const int64_t index = asked_++;
    if (index != fail_at_ && !(for_good_ && index > fail_at_)) return false;
    refused_ = true;
    return true;
  }

  DeviceMemory& memory_;
  int64_t fail_at_;
  bool for_good_;
  std::atomic<int64_t> asked_{0};
  std::atomic<int64_t> live_{0};
  std::atomic<bool> refused_{false};
};

}  // namespace segue
