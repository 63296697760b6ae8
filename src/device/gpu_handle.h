// Ownership of what a CUDA library hands out as a pointer.
#pragma once

#include <utility>

namespace segue {

// One object of the driver (a cudaStream_t, a cudaEvent_t, a cudaGraphExec_t ...) behind a pointer
// without type, so that no CUDA header reaches the layers above. `Destroy` never sees null.
template <void (*Destroy)(void*)>
class GpuHandle {
 public:
  GpuHandle() = default;
  explicit GpuHandle(void* handle) : handle_(handle) {}
  GpuHandle(GpuHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  GpuHandle& operator=(GpuHandle&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.handle_, nullptr));
    return *this;
  }
  GpuHandle(const GpuHandle&) = delete;
  GpuHandle& operator=(const GpuHandle&) = delete;
  ~GpuHandle() { Reset(nullptr); }

  void* get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void Reset(void* handle) {
    if (handle_ != nullptr) Destroy(handle_);
    handle_ = handle;
  }

  void* handle_ = nullptr;
};

}  // namespace segue
