// Random operands for the tests of kernels and attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "device/tensor_view.h"

namespace segue::kernels {

// Rows with NaN between them: an operation that reads or writes the padding shows it.
struct Matrix {
  std::vector<float> data;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  MatrixView View() { return {.data = data.data(), .rows = rows, .cols = cols, .stride = stride}; }
};

// `padding` floats follow each row.
inline Matrix RandomMatrix(int64_t rows, int64_t cols, int64_t padding, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Matrix matrix = {.rows = rows, .cols = cols, .stride = cols + padding};
  matrix.data.assign(rows * matrix.stride, std::numeric_limits<float>::quiet_NaN());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      matrix.data[row * matrix.stride + col] = normal(engine);
    }
  }
  return matrix;
}

// A tensor as a checkpoint holds it.
struct Weight {
  std::vector<char> bytes;
  WeightView view;
};

inline Weight RandomWeight(DType dtype, Shape shape, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Weight weight;
  const int64_t count = shape.NumElements();
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  weight.bytes.resize(count * size);
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(engine);
    const uint16_t half = dtype == DType::kF16 ? FloatToF16(value) : FloatToBF16(value);
    const void* source = dtype == DType::kF32 ? static_cast<const void*>(&value) : &half;
    std::memcpy(weight.bytes.data() + i * size, source, size);
  }
  weight.view = {.data = weight.bytes.data(), .dtype = dtype, .shape = shape};
  return weight;
}

// Bit for bit, so that NaN equals the same NaN and 0 differs from -0.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace segue::kernels
