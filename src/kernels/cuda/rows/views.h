// Matrices and tables as kernels take them: the views of the operations' parameters without what
// only a host can do.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/cuda/device/bf16.h"
#include "kernels/rope.h"
#include "kernels/row_table.h"

namespace segue::kernels::cuda {

__device__ __forceinline__ int64_t Clamped(int64_t index, int64_t count) {
  return index < 0 ? 0 : index < count ? index : count - 1;
}

struct Matrix {
  uint16_t* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;

  __device__ __forceinline__ uint16_t* Row(int64_t row) const { return data + row * stride; }
};

inline Matrix MatrixOf(const MatrixView& view) {
  return {static_cast<uint16_t*>(view.data), view.rows, view.cols, view.stride};
}

struct Table {
  const uint16_t* data;
  int64_t stride;
  const int32_t* index;
  int32_t rows;

  // The row of the table for row `row` of a matrix.
  __device__ __forceinline__ const uint16_t* For(int64_t row) const {
    return data + (index == nullptr ? 0 : Clamped(__ldg(index + row), rows)) * stride;
  }
};

inline Table TableOf(const RowTable& table) {
  return {static_cast<const uint16_t*>(table.data), table.stride, table.index,
          static_cast<int32_t>(table.rows)};
}

struct Weight {
  const void* data;
  DType dtype;

  __device__ __forceinline__ float At(int64_t i) const {
    switch (dtype) {
      case DType::kBF16:
        return device::Widen(static_cast<const uint16_t*>(data)[i]);
      case DType::kF16:
        return device::Float16::Widen(static_cast<const uint16_t*>(data)[i]);
      default:
        return static_cast<const float*>(data)[i];
    }
  }
};

inline Weight WeightOf(const WeightView& view) { return {view.data, view.dtype}; }

struct Rope {
  const float* cos;
  const float* sin;
  int64_t positions;
  const int32_t* index;

  __device__ __forceinline__ int64_t RowFor(int64_t row) const {
    return index == nullptr ? row : Clamped(__ldg(index + row), positions);
  }
};

inline Rope RopeOf(const RopeTable& table) {
  return {table.cos, table.sin, table.positions, table.index};
}

}  // namespace segue::kernels::cuda
