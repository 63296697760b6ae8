// Convolution of one image in NHWC: rows are pixels, columns are channels.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// How a weight lies in memory.
enum class WeightOrder : uint8_t {
  // As checkpoints have it: [out_channels, in_channels, k, k] or [out_channels, in_channels, kt, k,
  // k]. Of kt temporal taps the last one is used: a causal 3-D convolution of the first frame sees
  // zeros in all others.
  kOutInTaps,
  // [out_channels, k, k, in_channels], what GPUs want (kernels/convolution_weight.h).
  kOutTapsIn,
};

struct Conv2dParams {
  MatrixView x;  // [height * width, in_channels]
  int64_t height = 0;
  int64_t width = 0;
  WeightView weight;  // k = 1 or 3 (padding k / 2)
  WeightOrder order = WeightOrder::kOutInTaps;
  WeightView bias;        // [out_channels] or absent
  bool upsample = false;  // doubles x first: pixel (i, j) reads (i / 2, j / 2)
  MatrixView residual;    // like y, or absent (null data); may be y
  MatrixView y;           // [out_height * out_width, out_channels]; must not overlap x
  // Of the convolution with its bias, and of the sum with the residual. On a GPU both are rounded
  // in any case.
  Rounding rounding = Rounding::kNone;
};

// y = round(round(conv(x) + bias) + residual). On the CPU the sum over k = (row tap, column tap,
// channel), channel fastest, is taken as a Linear's (kLinearBlockK); on a GPU in an order that
// follows from the shape (kernels/convolution_library.h). Pixels outside count as zeros.
// Errors: shapes that do not fit; no implementation for the device.
Status Conv2d(const Conv2dParams& params, const Context& context);

}  // namespace segue::kernels
