#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "device/cuda_check.h"
#include "device/growing_memory.h"

namespace segue {
namespace {

// From the driver that the runtime has loaded: the library links no driver itself.
template <typename Function>
bool LookUp(const char* name, Function*& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (status != cudaSuccess) (void)cudaGetLastError();
  function = reinterpret_cast<Function*>(found);
  return status == cudaSuccess && result == cudaDriverEntryPointSuccess;
}

struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  bool complete = false;
};

Driver LookUpDriver() {
  Driver driver;
  driver.complete =
      LookUp("cuMemAddressReserve", driver.reserve) &&
      LookUp("cuMemAddressFree", driver.unreserve) && LookUp("cuMemCreate", driver.create) &&
      LookUp("cuMemRelease", driver.release) && LookUp("cuMemMap", driver.map) &&
      LookUp("cuMemUnmap", driver.unmap) && LookUp("cuMemSetAccess", driver.set_access) &&
      LookUp("cuMemGetAllocationGranularity", driver.granularity);
  return driver;
}

const Driver& TheDriver() {
  static const Driver driver = LookUpDriver();
  return driver;
}

CUmemAllocationProp PropertiesOf(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// Memory comes in multiples of this; 0: it does not come this way.
int64_t GranularityOf(int device) {
  if (!TheDriver().complete) return 0;
  const CUmemAllocationProp properties = PropertiesOf(device);
  size_t bytes = 0;
  if (TheDriver().granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
      CUDA_SUCCESS) {
    return 0;
  }
  return static_cast<int64_t>(bytes);
}

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

GrowingMemory::~GrowingMemory() {
  for (auto& [pointer, range] : ranges_) Release(range);
}

bool GrowingMemory::MapUpTo(Range& range, int64_t bytes) const {
  const int64_t granularity = GranularityOf(plain_.device());
  if (granularity == 0 || bytes > range.reserved) return false;
  Piece piece;
  piece.bytes = RoundUp(bytes, granularity) - range.mapped;
  if (piece.bytes <= 0) return true;
  const Driver& driver = TheDriver();
  const CUmemAllocationProp properties = PropertiesOf(plain_.device());
  const auto size = static_cast<size_t>(piece.bytes);
  CUmemGenericAllocationHandle handle = 0;
  if (driver.create(&handle, size, &properties, 0) != CUDA_SUCCESS) return false;
  const CUdeviceptr at = range.address + static_cast<uint64_t>(range.mapped);
  if (driver.map(at, size, 0, handle, 0) != CUDA_SUCCESS) {
    driver.release(handle);
    return false;
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (driver.set_access(at, size, &access, 1) != CUDA_SUCCESS) {
    driver.unmap(at, size);
    driver.release(handle);
    return false;
  }
  piece.handle = handle;
  range.pieces.push_back(piece);
  range.mapped += piece.bytes;
  return true;
}

void GrowingMemory::Release(Range& range) const {
  const CurrentDevice current(plain_.device());
  // Unmapping, unlike cudaFree, waits for nothing.
  if (current.status() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) {
    (void)cudaGetLastError();
  }
  const Driver& driver = TheDriver();
  CUdeviceptr at = range.address;
  for (const Piece& piece : range.pieces) {
    driver.unmap(at, static_cast<size_t>(piece.bytes));
    driver.release(piece.handle);
    at += static_cast<uint64_t>(piece.bytes);
  }
  driver.unreserve(range.address, static_cast<size_t>(range.reserved));
  range = {};
}

void* GrowingMemory::Allocate(int64_t bytes) {
  const CurrentDevice current(plain_.device());
  if (bytes < 0 || current.status() != cudaSuccess) return nullptr;
  const int64_t granularity = GranularityOf(plain_.device());
  size_t free = 0;
  size_t total = 0;
  if (granularity == 0 || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    (void)cudaGetLastError();
    return plain_.Allocate(bytes);
  }
  Range range;
  range.reserved = RoundUp(static_cast<int64_t>(total), granularity);
  CUdeviceptr address = 0;
  if (TheDriver().reserve(&address, static_cast<size_t>(range.reserved), 0, 0, 0) != CUDA_SUCCESS) {
    return plain_.Allocate(bytes);
  }
  range.address = address;
  if (!MapUpTo(range, std::max<int64_t>(bytes, 1))) {
    Release(range);
    return nullptr;
  }
  const std::scoped_lock lock(mutex_);
  void* pointer = reinterpret_cast<void*>(address);
  ranges_.emplace(pointer, std::move(range));
  return pointer;
}

bool GrowingMemory::Extend(void* pointer, int64_t bytes) {
  const CurrentDevice current(plain_.device());
  if (current.status() != cudaSuccess) return false;
  const std::scoped_lock lock(mutex_);
  const auto found = ranges_.find(pointer);
  return found != ranges_.end() && MapUpTo(found->second, bytes);
}

void GrowingMemory::Free(void* pointer) {
  if (pointer == nullptr) return;
  Range range;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = ranges_.find(pointer);
    if (found != ranges_.end()) {
      range = std::move(found->second);
      ranges_.erase(found);
    }
  }
  if (range.reserved == 0) {
    plain_.Free(pointer);
  } else {
    Release(range);
  }
}

}  // namespace segue
