// Stands for kernels/cuda/device/global_memory.h on the host. An access must be aligned as the
// device wants it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>

namespace segue::kernels::device {

template <typename Vector>
Vector LoadOrZeros(uint64_t address) {
  if (address % sizeof(Vector) != 0) std::abort();
  return address == 0 ? Vector{} : *reinterpret_cast<const Vector*>(address);
}

inline uint4 LoadIf(bool there, uint64_t address) {
  return LoadOrZeros<uint4>(there ? address : 0);
}

// The memory must be there.
inline void Prefetch(uint64_t address) {
  static_cast<void>(*reinterpret_cast<const volatile uint8_t*>(address));
}

template <typename Vector>
void Store(uint64_t address, Vector value) {
  if (address % sizeof(Vector) != 0) std::abort();
  *reinterpret_cast<Vector*>(address) = value;
}

template <typename T>
T LoadKept(const T* from) {
  return *from;
}

}  // namespace segue::kernels::device
