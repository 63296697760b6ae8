// A view of elements that somebody else owns: a pointer, a dtype, extents and strides.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/shape.h"

namespace segue {

// Rows of a row-major matrix, the shape nearly every operation works on. `stride` is the distance
// between rows in elements (at least `cols`), so a slice of a fused projection needs no copy.
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  template <typename T>
  T* Row(int64_t row) const {
    return static_cast<T*>(data) + row * stride;
  }
  MatrixView Rows(int64_t begin, int64_t count) const;
  MatrixView Cols(int64_t begin, int64_t count) const;
};

// A read-only tensor as it lies in a checkpoint: contiguous, row-major, in its stored dtype.
struct WeightView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  bool present() const { return data != nullptr; }
};

// A contiguous [rows, cols] view of float32 memory, or of memory of another type.
MatrixView ContiguousMatrix(float* data, int64_t rows, int64_t cols);
MatrixView ContiguousMatrix(void* data, DType dtype, int64_t rows, int64_t cols);

}  // namespace segue
