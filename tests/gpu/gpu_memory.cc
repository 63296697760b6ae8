#include "gpu/gpu_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/attention_sm90.h"

namespace segue::kernels {
namespace {

// A function of the driver that is loaded; null where it has none.
template <class Function>
Function Driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  return reinterpret_cast<Function>(found == cudaDriverEntryPointSuccess ? function : nullptr);
}
#define SEGUE_DRIVER(name) Driver<decltype(&(name))>(#name)

// A mapping of `size` bytes, rounded up, in twice the range: nothing is mapped after it.
class Mapping {
 public:
  explicit Mapping(int64_t bytes) {
    int device = 0;
    cudaGetDevice(&device);
    CUmemAllocationProp kind{};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    size_t granule = 0;
    const auto granularity = SEGUE_DRIVER(cuMemGetAllocationGranularity);
    if (granularity == nullptr ||
        granularity(&granule, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS) {
      return;
    }
    size_ = (static_cast<size_t>(bytes) + granule - 1) / granule * granule;
    range_ = size_ + granule;
    const CUmemAccessDesc access{.location = kind.location,
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    mapped_ = SEGUE_DRIVER(cuMemAddressReserve)(&begin_, range_, 0, 0, 0) == CUDA_SUCCESS &&
              SEGUE_DRIVER(cuMemCreate)(&memory_, size_, &kind, 0) == CUDA_SUCCESS &&
              SEGUE_DRIVER(cuMemMap)(begin_, size_, 0, memory_, 0) == CUDA_SUCCESS &&
              SEGUE_DRIVER(cuMemSetAccess)(begin_, size_, &access, 1) == CUDA_SUCCESS;
  }

  void* EndMinus(int64_t bytes) const {
    return mapped_ ? reinterpret_cast<void*>(begin_ + size_ - static_cast<size_t>(bytes)) : nullptr;
  }

  void Free() const {
    if (!mapped_) return;
    cudaDeviceSynchronize();
    SEGUE_DRIVER(cuMemUnmap)(begin_, size_);
    SEGUE_DRIVER(cuMemRelease)(memory_);
    SEGUE_DRIVER(cuMemAddressFree)(begin_, range_);
  }

 private:
  CUdeviceptr begin_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  size_t size_ = 0;
  size_t range_ = 0;
  bool mapped_ = false;
};

}  // namespace

std::string NoGpuReason() {
  const Result<int32_t> ctas = AttentionSm90Ctas();
  return ctas ? "" : ctas.error().Message();
}

GpuMemory::GpuMemory(int64_t bytes, Place place) : bytes_(bytes) {
  const int64_t some = std::max<int64_t>(bytes, 16);
  if (place == Place::kBeforeAGuard) {
    const Mapping mapping(some);
    data_ = mapping.EndMinus(bytes);
    free_ = [mapping] { mapping.Free(); };
    return;
  }
  cudaMalloc(&data_, static_cast<size_t>(some));
  free_ = [this] { cudaFree(data_); };
}
GpuMemory::~GpuMemory() { free_(); }
void GpuMemory::Write(const void* from) {
  cudaMemcpy(data_, from, static_cast<size_t>(bytes_), cudaMemcpyHostToDevice);
  // The copy may go on when it returns, and streams that do not wait for this one would overtake
  // it.
  cudaStreamSynchronize(nullptr);
}
void GpuMemory::Read(void* to) const {
  cudaMemcpy(to, data_, static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost);
}

}  // namespace segue::kernels
