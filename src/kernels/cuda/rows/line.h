// The vectors of a matrix, numbered through its rows.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/cuda/device/bf16.h"

namespace segue::kernels::cuda {

struct Line {
  uint64_t vectors;      // in all
  uint64_t reciprocal;   // floor(2^64 / row_vectors) + 1; 0 stands for 2^64
  uint32_t row_vectors;  // of a row
};

struct RowAndOffset {
  uint32_t row;
  uint32_t vector;  // of the row
  bool there;
};

// Where a matrix of the line's shape lies.
struct Place {
  uint64_t data;
  int64_t stride;  // bytes between rows

  __device__ __forceinline__ uint4* At(const RowAndOffset& place) const {
    return reinterpret_cast<uint4*>(data + place.row * stride + place.vector * sizeof(uint4));
  }
};

// Exact while vectors x row_vectors < 2^64: the reciprocal is too large by less than 1, which adds
// less than 1 / row_vectors to the quotient.
__device__ __forceinline__ RowAndOffset PlaceInLine(const Line& line, uint64_t vector) {
  const auto row =
      static_cast<uint32_t>(line.reciprocal == 0 ? vector : __umul64hi(vector, line.reciprocal));
  return {row, static_cast<uint32_t>(vector - uint64_t{row} * line.row_vectors),
          vector < line.vectors};
}

inline int64_t VectorsOf(const MatrixView& view) {
  return view.rows * (view.cols / device::kVector);
}

inline Line LineOf(const MatrixView& view) {
  const auto row_vectors = static_cast<uint64_t>(view.cols / device::kVector);
  return {static_cast<uint64_t>(VectorsOf(view)),
          row_vectors <= 1 ? 0 : ~uint64_t{0} / row_vectors + 1,
          static_cast<uint32_t>(row_vectors)};
}

inline Place PlaceOf(const MatrixView& view) {
  return {reinterpret_cast<uint64_t>(view.data), view.stride * int64_t{sizeof(uint16_t)}};
}

}  // namespace segue::kernels::cuda
