// Linked instead of the CUDA kernels of the picture decoder where the build has no CUDA.
#include "kernels/cuda/vae/vae.h"

#include "kernels/cuda/no_cuda.h"

namespace segue::kernels::cuda {

Status RefChannelNorm(const ChannelNormParams&, const Context&) { return NoCuda("channel_norm"); }
Status RefConv2d(const Conv2dParams&, const Context&) { return NoCuda("conv2d"); }
Status RefReorderConvolutionWeight(const ConvolutionWeightParams&, const Context&) {
  return NoCuda("reorder_convolution_weight");
}
Status RefUpsample(const UpsampleParams&, const Context&) { return NoCuda("upsample"); }
Status ChannelNorm(const ChannelNormParams&, const Context&) { return NoCuda("channel_norm"); }
Status Upsample(const UpsampleParams&, const Context&) { return NoCuda("upsample"); }
Status WideAttention(const WideAttentionParams&, const Context&) {
  return NoCuda("wide_attention");
}
Status SoftmaxInPlace(const SoftmaxParams&, const Context&) { return NoCuda("softmax"); }

}  // namespace segue::kernels::cuda
