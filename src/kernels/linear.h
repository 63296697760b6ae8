// Linear layer: y = round(x W^T + b), the product every network here is made of.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// Keys of a product are summed in blocks of this many: each block is one chain of fused
// multiply-adds in ascending k that starts at zero, and the block sums are added in ascending
// order. That order is part of the operation's definition: it depends on neither the number of
// rows, nor the threads, nor the instruction set, so a row's bytes do not depend on its company.
// 256 floats of a packed panel of 16 columns are 16 KiB, a third of the smallest L1 in use.
inline constexpr int64_t kLinearBlockK = 256;

enum class Activation : uint8_t { kNone, kGeluTanh, kSilu };

struct LinearParams {
  MatrixView x;       // [M, K] float32
  WeightView weight;  // [N, K] float32, float16 or bfloat16, as stored; widened in the product
  WeightView bias;    // [N] or absent
  MatrixView y;       // [M, N] float32; must not overlap x
  Rounding rounding = Rounding::kNone;  // of x W^T + b, and again after the activation
  Activation activation = Activation::kNone;
  bool accumulate = false;  // y += instead of y =, before rounding
};

// Error: no implementation accepts the parameters.
Status Linear(const LinearParams& params, const Context& context);

}  // namespace segue::kernels
