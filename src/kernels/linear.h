// Linear layer: y = round(x W^T + b), the product every network here is made of.
#pragma once

#include "device/tensor_view.h"
#include "kernels/activation.h"
#include "kernels/registry.h"

namespace segue::kernels {

// A product sums over k in blocks of this many: each block is one chain of fused multiply-adds in
// ascending k that starts at zero, and the block sums are added in ascending order, then the bias.
// That order is part of the operation's definition: it depends on neither the number of rows, nor
// the threads, nor the instruction set, so a row's bytes do not depend on its company.
// 256 floats of a packed panel of 16 columns are 16 KiB, a third of the smallest L1 in use.
inline constexpr int64_t kLinearBlockK = 256;

struct LinearParams {
  MatrixView x;       // [M, K]
  WeightView weight;  // [N, K] float32, float16 or bfloat16, as stored; widened in the product
  WeightView bias;    // [N] or absent
  MatrixView y;       // [M, N]; must not overlap x
  // Of x W^T + b, again after the activation, and again after the addition to y; the last of these
  // alone under kBF16Once. On a GPU sums are bfloat16 before an activation, but for GELU under
  // kBF16Once.
  Rounding rounding = Rounding::kNone;
  Activation activation = Activation::kNone;
  bool accumulate = false;  // y += instead of y =
  // On a GPU, where a product's order is that of its weight's class (ProductForm): the pieces that
  // the sum is cut into. One number for all calls of a weight.
  int32_t k_splits = 1;
};

// Errors: shapes that do not fit together; no implementation for the device.
Status Linear(const LinearParams& params, const Context& context);

}  // namespace segue::kernels
