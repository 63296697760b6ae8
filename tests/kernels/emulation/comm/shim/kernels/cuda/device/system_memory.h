// Stands for kernels/cuda/device/system_memory.h on the host, whose threads share memory as GPUs
// do. Now and then a thread is held up where it matters.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace segue::kernels::device {

inline void HoldUp() {
  static thread_local uint32_t state = 1;
  state = state * 1664525u + 1013904223u + threadIdx.x + blockIdx.x;
  if ((state >> 24) % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state >> 27));
}

inline void StoreRelease(uint32_t* to, uint32_t value) {
  HoldUp();
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline uint32_t LoadAcquire(const uint32_t* from) {
  std::this_thread::yield();
  return std::atomic_ref(*const_cast<uint32_t*>(from)).load(std::memory_order_acquire);
}
inline uint32_t LoadRelaxed(const uint32_t* from) {
  return std::atomic_ref(*const_cast<uint32_t*>(from)).load(std::memory_order_relaxed);
}
inline uint32_t SetIfZero(uint32_t* word, uint32_t value) {
  uint32_t former = 0;
  std::atomic_ref(*word).compare_exchange_strong(former, value);
  return former;
}
// Aligned as the device wants it.
inline uint4 LoadPeer(const void* from) {
  if (reinterpret_cast<uintptr_t>(from) % sizeof(uint4) != 0) std::abort();
  return *static_cast<const uint4*>(from);
}
inline uint64_t GlobalTimer() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace segue::kernels::device
