// The packed product y = x W^T on the CPU, which Linear and Conv2d share.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/activation.h"
#include "kernels/conv2d.h"
#include "kernels/cpu/blocks.h"
#include "kernels/linear.h"
#include "kernels/registry.h"

namespace segue::kernels::cpu {

// Rows of x that are windows of an image: row m holds, tap by tap, the channels of the pixels
// around output pixel m. `taps` 0: x is a plain matrix.
struct ImageWindow {
  int64_t height = 0;  // of x, before doubling
  int64_t width = 0;
  int doublings = 0;  // 1: x is doubled first
  int64_t taps = 0;   // of a side, 1 or 3
};

struct ProductParams {
  MatrixView x;  // [M, K], or [height * width, K / taps^2] under a window
  ImageWindow window;
  int64_t depth = 0;    // K
  WeightView weight;    // [N, K]
  WeightView bias;      // [N] or absent
  MatrixView residual;  // [M, N], may be y; null data: absent
  MatrixView y;         // [M, N]
  Rounding rounding = Rounding::kNone;
  Activation activation = Activation::kNone;
};

// What is compiled for an instruction set. A task computes one block of y; `scratch` is the
// worker's (ThreadPool::Scratch), of which it uses less than half.
struct ProductCode {
  TileLimits limits;
  void (*run_task)(const ProductParams& params, const ProductBlocks& blocks, int64_t task,
                   void* scratch);
};

extern const ProductCode kProductAvx2;
extern const ProductCode kProductAvx512;

Status LinearAvx2(const LinearParams& params, const Context& context);
Status LinearAvx512(const LinearParams& params, const Context& context);
// Whether the reordered weights of one output channel fit where they are kept.
bool Conv2dFits(const Conv2dParams& params);
Status Conv2dAvx2(const Conv2dParams& params, const Context& context);
Status Conv2dAvx512(const Conv2dParams& params, const Context& context);

}  // namespace segue::kernels::cpu
