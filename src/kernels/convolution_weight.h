// Weights of a convolution as GPUs read them.
#pragma once

#include <cstdint>

#include "base/shape.h"
#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// [out_channels, k, k, in_channels] of [out_channels, in_channels, (kt,) k, k].
Shape TapsFirst(const Shape& checkpoint);

struct ConvolutionWeightParams {
  WeightView weight;      // WeightOrder::kOutInTaps, F32, F16 or BF16
  uint16_t* y = nullptr;  // WeightOrder::kOutTapsIn, bfloat16; must not overlap the weight
};

// Once, when a model is loaded. Of several temporal taps the last is kept. Errors: shapes that are
// no convolution's; no implementation for the device (the CPU reads checkpoints as they are).
Status ReorderConvolutionWeight(const ConvolutionWeightParams& params, const Context& context);

}  // namespace segue::kernels
