// Operands that show up another order of summation, and the comparison of what came of them.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "segue/status.h"

namespace segue::kernels::cublaslt {

// Fills x [rows, k] and a weight, both bfloat16, with normal deviates such that the terms of every
// even row of y cancel: x[r][k-1-i] = x[r][i] and w[c][k-1-i] = -w[c][i]. What is left of such a
// sum is its own rounding errors, of which another order of additions leaves others in nearly every
// element; of an ordinary sum, as odd rows are, bfloat16 hides all but a thousandth of them.
struct ComparisonOperands {
  void* x = nullptr;
  int64_t rows = 0;
  void* weight = nullptr;  // `copies` of [n, k], or [k, n] where transposed
  int64_t copies = 1;
  int64_t n = 0;
  int64_t k = 0;
  bool transposed = false;
  void* bias = nullptr;  // [n]: zero but for every fourth column, since it too hides errors
  uint32_t seed = 1;
};
Status FillComparison(const ComparisonOperands& operands, const Stream& stream);

// Elements of `bytes_each` (2 or 4) bytes, of which a and b are compared in rows of `cols`; `a`
// rows are a_stride elements apart, b is contiguous. Adds the number of those that differ in any
// bit to *count (device memory).
struct Comparison {
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t bytes_each = 2;
  uint64_t* count = nullptr;
};
Status CountDifferences(const Comparison& comparison, const Stream& stream);

}  // namespace segue::kernels::cublaslt
