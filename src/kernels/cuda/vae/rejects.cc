// What the CUDA kernels of this folder do not serve, and why.
#include <cstdint>

#include "kernels/cuda/alignment.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels::cuda {
namespace {

constexpr char kUnaligned[] = "pixels are not aligned to 16 bytes";
constexpr int64_t kMaxNormChannels = 384;  // what a group of 16 threads keeps in registers

}  // namespace

const char* RejectsConv2d(const Conv2dParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (params.order != WeightOrder::kOutTapsIn) return "weights lie in the checkpoint's order";
  return params.weight.dtype == DType::kBF16 ? nullptr : "weights are not bfloat16";
}

const char* RejectsFastChannelNorm(const ChannelNormParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (!IsAligned(params.x) || !IsAligned(params.y)) return kUnaligned;
  if (params.addend.data != nullptr && !IsAligned(params.addend)) return kUnaligned;
  if (params.sum.data != nullptr && !IsAligned(params.sum)) return kUnaligned;
  if (params.gamma.dtype != DType::kBF16 || !IsAligned(params.gamma.data)) {
    return "gamma is not bfloat16 aligned to 16 bytes";
  }
  return params.x.cols <= kMaxNormChannels ? nullptr : "there are more than 384 channels";
}

const char* RejectsFastUpsample(const UpsampleParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  const bool aligned = IsAligned(params.x) && IsAligned(params.y) &&
                       (params.addend.data == nullptr || IsAligned(params.addend));
  if (!aligned) return kUnaligned;
  return params.y.rows < (int64_t{1} << 31) ? nullptr : "there are more than 2^31 - 1 pixels";
}

const char* RejectsWideAttention(const WideAttentionParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (context.products == nullptr) return "there is no product library";
  return params.k.rows <= kMaxSoftmaxColumns ? nullptr : "there are more than 65,536 keys";
}

}  // namespace segue::kernels::cuda
