// What an engine on a GPU holds besides its model: the device's memory, its one stream, and the
// libraries that multiply and convolve.
#pragma once

#include <memory>
#include <string>

#include "device/counted_memory.h"
#include "device/cuda_memory.h"
#include "device/gpu_stream.h"
#include "device/growing_memory.h"
#include "kernels/convolution_library.h"
#include "kernels/product_library.h"
#include "model/layers/placement.h"
#include "runtime/engine_memory.h"

namespace segue::runtime {

// What cuBLASLt's algorithms for this architecture are made for.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// "cpu", "cuda" (the first GPU) or "cuda:1". -1: the CPU. Errors: anything else.
Result<int> ParseDevice(const std::string& name);

// "NVIDIA H200". Errors: no such device.
Result<std::string> GpuName(int device);

class GpuResources {
 public:
  // Makes the device current. `cache_directory`: where choices of algorithms are kept; empty:
  // nowhere. `memory`: all but the host's is used. Errors: no CUDA in this build, no
  // such device, a library that is not there.
  static Result<std::unique_ptr<GpuResources>> Create(int device,
                                                      const std::string& cache_directory,
                                                      const EngineMemory& memory = {});
  ~GpuResources();
  GpuResources(const GpuResources&) = delete;
  GpuResources& operator=(const GpuResources&) = delete;

  DeviceMemory& memory() { return memory_; }
  // For what recorded steps point into: it grows where it lies.
  DeviceMemory& workspace_memory() { return workspace_memory_; }
  // Of both.
  const MemoryCount& count() const { return count_; }
  DeviceMemory& pinned() { return *pinned_; }
  int device() const { return cuda_.device(); }
  // What the device had free when nothing was allocated yet.
  int64_t free_before() const { return free_before_; }
  const GpuStream& stream() const { return *stream_; }
  kernels::ProductLibrary& products() { return *products_; }
  // Null where cuDNN is not there: plain kernels convolve then, and their log says why.
  kernels::ConvolutionLibrary* convolutions() { return convolutions_.get(); }
  // One rank on this GPU, of a group of one unless SetRanks said otherwise.
  const model::Placement& placement() const { return placement_; }
  // Before anything is laid out.
  void SetRanks(int ranks) { placement_.ranks = ranks; }

 private:
  GpuResources(int device, const EngineMemory& memory)
      : cuda_(device),
        growing_(device),
        memory_(memory.device != nullptr ? *memory.device : cuda_, count_),
        workspace_memory_(memory.workspace != nullptr ? *memory.workspace : growing_, count_),
        pinned_(memory.pinned != nullptr ? memory.pinned : &own_pinned_) {}
  Result<void*> TakeWorkspace(const char* name, int64_t bytes);

  CudaMemory cuda_;
  GrowingMemory growing_;
  MemoryCount count_;
  CountedMemory memory_;
  CountedMemory workspace_memory_;
  PinnedMemory own_pinned_;
  DeviceMemory* pinned_;
  int64_t free_before_ = 0;
  std::unique_ptr<GpuStream> stream_;
  void* product_workspace_ = nullptr;
  void* convolution_workspace_ = nullptr;
  std::unique_ptr<kernels::ProductLibrary> products_;
  std::unique_ptr<kernels::ConvolutionLibrary> convolutions_;
  model::Placement placement_;
};

}  // namespace segue::runtime
