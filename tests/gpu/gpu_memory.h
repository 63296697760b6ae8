// Device memory of tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace segue::kernels {

// Why there is nothing to test on; empty where there is a Hopper GPU.
std::string NoGpuReason();

// Frees itself. data() is null where there is not enough.
class GpuMemory {
 public:
  enum class Place : uint8_t {
    kAnywhere,
    // The last byte is the last one of its mapping: whatever reads or writes past it faults.
    kBeforeAGuard,
  };

  explicit GpuMemory(int64_t bytes, Place place = Place::kAnywhere);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  void Write(const void* from);  // the whole memory
  void Read(void* to) const;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_;
  std::function<void()> free_;
};

}  // namespace segue::kernels
