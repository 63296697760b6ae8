// Convolution of one image in NHWC: rows are pixels, columns are channels.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct Conv2dParams {
  MatrixView x;  // [height * width, in_channels] float32
  int64_t height = 0;
  int64_t width = 0;
  // [out_channels, in_channels, k, k] or [out_channels, in_channels, kt, k, k] as the checkpoint
  // has it, k = 1 or 3 (padding k / 2). Of kt temporal taps the last one is used: a causal 3-D
  // convolution of the first frame sees zeros in all others.
  WeightView weight;
  WeightView bias;        // [out_channels] or absent
  bool upsample = false;  // doubles x first: pixel (i, j) reads (i / 2, j / 2)
  MatrixView residual;    // like y, or absent (null data); may be y
  MatrixView y;           // [out_height * out_width, out_channels] float32; must not overlap x
  // Of the convolution with its bias, and of the sum with the residual.
  Rounding rounding = Rounding::kNone;
};

// y = round(round(conv(x) + bias) + residual). The sum over k = (row tap, column tap, channel),
// channel fastest, is taken as a Linear's (kLinearBlockK); pixels outside count as zeros.
// Errors: shapes that do not fit; no implementation for the device.
Status Conv2d(const Conv2dParams& params, const Context& context);

}  // namespace segue::kernels
