// The CUDA implementations of the picture decoder's operations, without CUDA headers.
//
// Ref...: one plain kernel an operation, the definition of its bytes on a GPU. The others move
// vectors of 16 bytes and give the same bytes: sums and formulas are device functions that both use
// (cuda/device/row_sum.h, channel_norm.h).
//
// All enqueue on the context's stream, allocate nothing and wait for nothing. A build without CUDA
// links no_vae.cc.
#pragma once

#include <cstdint>

#include "kernels/channel_norm.h"
#include "kernels/conv2d.h"
#include "kernels/convolution_weight.h"
#include "kernels/upsample.h"
#include "kernels/wide_attention.h"

namespace segue::kernels::cuda {

// Preconditions of all: what the operation of the same name checks, and null from its Rejects.
Status RefChannelNorm(const ChannelNormParams& params, const Context& context);
Status RefConv2d(const Conv2dParams& params, const Context& context);
Status RefReorderConvolutionWeight(const ConvolutionWeightParams& params, const Context& context);
Status RefUpsample(const UpsampleParams& params, const Context& context);

Status ChannelNorm(const ChannelNormParams& params, const Context& context);
Status Upsample(const UpsampleParams& params, const Context& context);
Status WideAttention(const WideAttentionParams& params, const Context& context);

// Null, or why it cannot serve (vae/rejects.cc).
const char* RejectsConv2d(const Conv2dParams& params, const Context& context);
const char* RejectsFastChannelNorm(const ChannelNormParams& params, const Context& context);
const char* RejectsFastUpsample(const UpsampleParams& params, const Context& context);
const char* RejectsWideAttention(const WideAttentionParams& params, const Context& context);

// Softmax of scores [rows, cols] float32, `stride` floats apart: row r becomes round(exp(scale
// (s - max)) / sum), bfloat16 in the first half of its own memory.
struct SoftmaxParams {
  float* scores = nullptr;  // 16-byte aligned
  int64_t rows = 0;
  int64_t cols = 0;         // 1 to kMaxSoftmaxColumns
  int64_t padded_cols = 0;  // those from `cols` to here become 0; a multiple of 4
  int64_t stride = 0;       // a multiple of 4, at least padded_cols
  float scale = 1.0f;       // above 0
};
// What the threads of a CTA hold of a row.
inline constexpr int64_t kMaxSoftmaxColumns = 65536;
Status SoftmaxInPlace(const SoftmaxParams& params, const Context& context);

}  // namespace segue::kernels::cuda
