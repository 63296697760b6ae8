// A map at twice its size, each pixel repeated.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct UpsampleParams {
  MatrixView x;       // [height * width, C]
  MatrixView addend;  // like x, or absent: added to x first, the sum rounded
  int64_t height = 0;
  int64_t width = 0;
  MatrixView y;  // [4 * height * width, C]: pixel (i, j) is x's (i / 2, j / 2); overlaps neither
};

// What Conv2dParams::upsample does on the CPU on its way, for GPUs, whose convolutions read memory.
// Errors: shapes that do not fit; no implementation for the device (there is none for the CPU).
Status Upsample(const UpsampleParams& params, const Context& context);

}  // namespace segue::kernels
