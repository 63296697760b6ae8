// What kernels that move vectors of 16 bytes ask of their operands.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/row_table.h"

namespace segue::kernels::cuda {

inline constexpr int64_t kVectorBytes = 16;
inline constexpr int64_t kVectorElements = 8;  // of 16 bits

inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0;
}
// Every row is whole vectors, and begins at one.
inline bool IsAligned(const MatrixView& view) {
  return view.cols % kVectorElements == 0 && IsAligned(view.data) &&
         (view.rows <= 1 || view.stride % kVectorElements == 0);
}
inline bool IsAligned(const RowTable& table) {
  return IsAligned(table.data) && (table.rows <= 1 || table.stride % kVectorElements == 0);
}

}  // namespace segue::kernels::cuda
