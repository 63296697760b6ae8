// Memory of a packing test, on the host and on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/gpu_rig.h"
#include "kernels/pack_case.h"

namespace segue::kernels {

// Memories of a case side by side in one allocation, so that a case costs one copy each way. Where
// an access leaves its memory it meets canaries of the next.
class Mirror {
 public:
  explicit Mirror(int64_t capacity) : memory_(capacity), host_(capacity, 0x5a) {}

  // What went wrong; empty when all is on the device.
  std::string Upload(const std::vector<Bytes>& memory) {
    addresses_.clear();
    offsets_.clear();
    int64_t at = 256;
    for (const Bytes& bytes : memory) {
      const auto size = static_cast<int64_t>(bytes.size());
      if (at + size > memory_.bytes()) return "the mirror is too small";
      std::copy(bytes.begin(), bytes.end(), host_.begin() + at);
      offsets_.push_back(at);
      addresses_.push_back(static_cast<char*>(memory_.data()) + at);
      at += (size + 511) / 256 * 256;
    }
    used_ = at;
    const cudaError_t status =
        cudaMemcpy(memory_.data(), host_.data(), static_cast<size_t>(at), cudaMemcpyHostToDevice);
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
  }
  // Where the memories last uploaded lie on the device.
  const std::vector<void*>& addresses() const { return addresses_; }

  std::vector<Bytes> Download(const std::vector<Bytes>& like) {
    cudaMemcpy(host_.data(), memory_.data(), static_cast<size_t>(used_), cudaMemcpyDeviceToHost);
    std::vector<Bytes> memory;
    for (size_t i = 0; i < like.size(); ++i) {
      const auto begin = host_.begin() + offsets_[i];
      memory.emplace_back(begin, begin + static_cast<int64_t>(like[i].size()));
    }
    return memory;
  }

 private:
  GpuMemory memory_;
  Bytes host_;
  std::vector<int64_t> offsets_;
  std::vector<void*> addresses_;
  int64_t used_ = 0;
};

}  // namespace segue::kernels
