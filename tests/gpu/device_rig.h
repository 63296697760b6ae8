// What tests of the device layer are built from.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_stream.h"
#include "gpu/gpu_rig.h"

namespace segue {

inline int64_t Size(const std::vector<uint8_t>& bytes) {
  return static_cast<int64_t>(bytes.size());
}

inline std::vector<uint8_t> RandomBytes(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

// Device memory, all bytes 0xff: a NaN in every float type.
class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes) : data_(memory_.Allocate(bytes)), bytes_(bytes) {
    cudaMemset(data_, 0xff, static_cast<size_t>(bytes));
    cudaDeviceSynchronize();
  }
  ~DeviceBytes() { memory_.Free(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  CudaMemory memory_{0};
  void* data_;
  int64_t bytes_;
};

inline std::vector<uint8_t> Read(const void* device, int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  EXPECT_TRUE(ReadBack(bytes.data(), device, count, nullptr).ok());
  return bytes;
}

// Holds a stream up while it lives.
class Gate {
 public:
  explicit Gate(const GpuStream& stream) {
    const auto wait = [](void* open) {
      while (!static_cast<std::atomic<bool>*>(open)->load()) std::this_thread::yield();
    };
    EXPECT_EQ(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.get()), wait, &open_),
              cudaSuccess);
    stream_ = &stream;
  }
  ~Gate() {
    open_ = true;
    EXPECT_TRUE(stream_->Synchronize().ok());
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

 private:
  std::atomic<bool> open_{false};
  const GpuStream* stream_;
};

}  // namespace segue
