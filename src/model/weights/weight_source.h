// Where a weight's elements are to be had, and which of them are wanted.
#pragma once

#include <cstdint>
#include <string>

#include "device/tensor_view.h"
#include "model/weights/tensor_file.h"

namespace segue::model {

// A weight before it is placed: in a file, in host memory, or made from a seed. Its dtype and shape
// are the view's.
struct WeightSource {
  std::string name;  // as error messages spell it: file and tensor
  WeightView view;   // data: in the file's mapping or in memory; null for a random weight
  const TensorFile* file = nullptr;  // null for memory and random weights
  int64_t file_offset = 0;           // bytes from the beginning of the file
  // Of a random weight (kernels/random_weights.h).
  uint64_t random_key = 0;
  float mean = 0;
  float deviation = 0;

  bool random() const { return file == nullptr && view.data == nullptr; }
};

// A part of a tensor: some of its rows (extents of axis 0, of a vector too) or some columns of a
// matrix. What a rank of a tensor-parallel group holds.
struct WeightSlice {
  static constexpr int64_t kAll = -1;
  enum class Axis : uint8_t { kRows, kColumns };

  Axis axis = Axis::kRows;
  int64_t begin = 0;
  int64_t count = kAll;  // kAll: to the end

  static WeightSlice Rows(int64_t begin, int64_t count) { return {Axis::kRows, begin, count}; }
  static WeightSlice Columns(int64_t begin, int64_t count) {
    return {Axis::kColumns, begin, count};
  }
};

// The elements of a slice: element first + i * stride + j of the tensor, i < rows, j < cols.
struct WeightExtent {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  Shape shape;  // of the slice

  int64_t elements() const { return rows * cols; }
  bool contiguous() const { return rows <= 1 || stride == cols; }
};
// Contiguous slices come as one row. Error (kInvalidArgument): a slice that is not inside the
// tensor, columns of what is no matrix.
Result<WeightExtent> ExtentOf(const WeightSource& source, const WeightSlice& slice);

}  // namespace segue::model
