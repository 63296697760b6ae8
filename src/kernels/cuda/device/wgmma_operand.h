// Descriptors of wgmma operands in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

// Describes an operand in shared memory, 128-byte swizzle: bits 0-13 address / 16, 16-29 leading
// byte offset / 16, 32-45 stride byte offset / 16, 62-63 the swizzle (1 = 128 bytes).
// The matrix lies in atoms of 8 rows x 128 bytes that start at multiples of 1024.
//  - rows along the sum (Q and K: a row is 64 elements of head_dim): the stride leads from one
//  group
//    of 8 rows to the next; the leading offset is not used.
//  - rows across the sum (V: a row is 64 output columns): the stride leads from one group of 8 rows
//    to the next, the leading offset from one block of 64 columns to the next.
__device__ __forceinline__ uint64_t WgmmaOperand(uint32_t address, uint32_t leading_bytes) {
  constexpr uint64_t kGroupBytes = 1024;
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<uint64_t>(leading_bytes >> 4) << 16 | (kGroupBytes >> 4) << 32 |
         uint64_t{1} << 62;
}
// An operand `bytes` further on: adds to the address field alone.
__device__ __forceinline__ uint64_t WgmmaAdvance(uint64_t operand, uint32_t bytes) {
  return operand + (bytes >> 4);
}

}  // namespace segue::kernels::device
