// The plain kernels of the decoder's operations: a warp a pixel, or a thread an element.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device/channel_norm.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/views.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels::cuda {
namespace {

struct NormArguments {
  Matrix x;
  Matrix addend;  // data null: none
  Matrix sum;     // data null: nowhere
  Matrix y;
  Weight gamma;
  float root;
  bool silu;
};

template <bool kSteps>
__global__ void ChannelNormKernel(NormArguments arguments) {
  const int64_t row = WarpIndex();
  if (row >= arguments.x.rows) return;
  const int64_t channels = arguments.x.cols;
  const auto at = [&arguments, row](int64_t i) {
    const float x = device::Widen(arguments.x.Row(row)[i]);
    if (arguments.addend.data == nullptr) return x;
    return device::Step<true>(__fadd_rn(x, device::Widen(arguments.addend.Row(row)[i])));
  };
  const device::Divisor divisor =
      device::DivisorOf(device::WarpRowSum(channels, device::Square{}, at), kSmallestNorm);
  for (int64_t i = LaneIndex(); i < channels; i += 32) {
    const float x = at(i);  // before anything is written in its place
    if (arguments.sum.data != nullptr) arguments.sum.Row(row)[i] = device::Narrow(x);
    arguments.y.Row(row)[i] = device::Narrow(device::ChannelNorm<kSteps>(
        x, divisor, arguments.root, arguments.gamma.At(i), arguments.silu));
  }
}

struct ConvolutionArguments {
  Matrix x;
  int64_t height;  // of y
  int64_t width;
  int32_t scale;  // of y to x: 1 or 2
  int64_t kernel;
  const uint16_t* weight;  // [out, k, k, in]
  Weight bias;             // data null: none
  Matrix residual;         // data null: none
  Matrix y;
};

__device__ __forceinline__ float ConvolveAt(const ConvolutionArguments& p, int64_t pixel,
                                            int64_t channel) {
  const int64_t taps = p.kernel * p.kernel;
  float sum = 0.0f;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t row = pixel / p.width + tap / p.kernel - p.kernel / 2;
    const int64_t col = pixel % p.width + tap % p.kernel - p.kernel / 2;
    if (row < 0 || row >= p.height || col < 0 || col >= p.width) continue;
    const uint16_t* x = p.x.Row(row / p.scale * (p.width / p.scale) + col / p.scale);
    const uint16_t* weight = p.weight + (channel * taps + tap) * p.x.cols;
    for (int64_t i = 0; i < p.x.cols; ++i) {
      sum = __fmaf_rn(device::Widen(x[i]), device::Widen(weight[i]), sum);
    }
  }
  return sum;
}

__global__ void ConvolutionKernel(ConvolutionArguments p) {
  const int64_t pixel = ItemIndex() / p.y.cols;
  const int64_t channel = ItemIndex() % p.y.cols;
  if (pixel >= p.y.rows) return;
  float value = ConvolveAt(p, pixel, channel);
  if (p.bias.data != nullptr) value = __fadd_rn(value, p.bias.At(channel));
  if (p.residual.data != nullptr) {
    const float residual = device::Widen(p.residual.Row(pixel)[channel]);
    value = __fadd_rn(residual, device::Step<true>(value));
  }
  p.y.Row(pixel)[channel] = device::Narrow(value);
}

__global__ void ReorderKernel(Weight weight, int64_t in, int64_t frames, int64_t taps,
                              int64_t elements, uint16_t* y) {
  const int64_t item = ItemIndex();
  if (item >= elements) return;
  const int64_t channel = item % in;
  const int64_t tap = item / in % taps;
  const int64_t out = item / in / taps;
  y[item] = device::Narrow(weight.At(((out * in + channel) * frames + frames - 1) * taps + tap));
}

__global__ void UpsampleKernel(Matrix x, Matrix addend, int64_t width, Matrix y) {
  const int64_t pixel = ItemIndex() / y.cols;
  const int64_t channel = ItemIndex() % y.cols;
  if (pixel >= y.rows) return;
  const int64_t from = pixel / (2 * width) / 2 * width + pixel % (2 * width) / 2;
  float value = device::Widen(x.Row(from)[channel]);
  if (addend.data != nullptr) value = __fadd_rn(value, device::Widen(addend.Row(from)[channel]));
  y.Row(pixel)[channel] = device::Narrow(value);
}

}  // namespace

Status RefChannelNorm(const ChannelNormParams& params, const Context& context) {
  const NormArguments arguments = {
      .x = MatrixOf(params.x),
      .addend = MatrixOf(params.addend),
      .sum = MatrixOf(params.sum),
      .y = MatrixOf(params.y),
      .gamma = WeightOf(params.gamma),
      .root = static_cast<float>(std::sqrt(static_cast<double>(params.x.cols))),
      .silu = params.silu};
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueWarps("channel_norm", ChannelNormKernel<decltype(steps)::value>, params.x.rows,
                        context, arguments);
  });
}

Status RefConv2d(const Conv2dParams& params, const Context& context) {
  const int32_t scale = params.upsample ? 2 : 1;
  const ConvolutionArguments arguments = {
      .x = MatrixOf(params.x),
      .height = scale * params.height,
      .width = scale * params.width,
      .scale = scale,
      .kernel = params.weight.shape[1],
      .weight = static_cast<const uint16_t*>(params.weight.data),
      .bias = WeightOf(params.bias),
      .residual = MatrixOf(params.residual),
      .y = MatrixOf(params.y)};
  return EnqueueItems("conv2d", ConvolutionKernel, params.y.rows * params.y.cols, context,
                      arguments);
}

Status RefReorderConvolutionWeight(const ConvolutionWeightParams& params, const Context& context) {
  const Shape& shape = params.weight.shape;
  const int rank = shape.rank();
  const int64_t taps = shape[rank - 2] * shape[rank - 1];
  const int64_t elements = shape[0] * shape[1] * taps;
  return EnqueueItems("reorder_convolution_weight", ReorderKernel, elements, context,
                      WeightOf(params.weight), shape[1], rank == 5 ? shape[2] : int64_t{1}, taps,
                      elements, params.y);
}

Status RefUpsample(const UpsampleParams& params, const Context& context) {
  return EnqueueItems("upsample", UpsampleKernel, params.y.rows * params.y.cols, context,
                      MatrixOf(params.x), MatrixOf(params.addend), params.width,
                      MatrixOf(params.y));
}

}  // namespace segue::kernels::cuda
