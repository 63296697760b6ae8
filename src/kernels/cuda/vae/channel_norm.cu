// The decoder's norm over vectors of 16 bytes.
//
// A group of 4, 8 or 16 neighbouring threads takes a pixel, three vectors a thread at most: 96, 192
// and 384 channels without a thread idle. The group adds its vectors as row_sum.h says; vector
// lane + kLanes * i lies with thread `lane`, so distances below kLanes are shuffles and those from
// there on are sums of a thread's own.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device/channel_norm.h"
#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int kVectors = 3;  // a thread
// Pixels a group takes one after the other, so that gamma is read once for several.
constexpr int32_t kRounds = 4;

struct Map {
  uint16_t* data;
  int64_t stride;

  __device__ __forceinline__ uint4* At(int64_t pixel, int vector) const {
    return reinterpret_cast<uint4*>(data + pixel * stride) + vector;
  }
};

struct Arguments {
  Map x;
  Map addend;
  Map sum;  // data null: nowhere
  Map y;
  const uint4* gamma;
  int64_t pixels;
  int32_t vectors;  // of a pixel
  float root;       // of the number of channels
  bool silu;
};

// The sum over a pixel's vectors in the order of row_sum.h.
template <int kLanes>
__device__ __forceinline__ float PixelSum(const float (&sums)[kVectors]) {
  float lanes[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) lanes[i] = device::LaneSum(sums[i], kLanes);
  return __fadd_rn(__fadd_rn(lanes[0], lanes[1]), lanes[2]);
}

__device__ __forceinline__ device::Floats Add(uint4 a, uint4 b) {
  device::Floats x = device::Widen(a);
  const device::Floats y = device::Widen(b);
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) {
    x.at[i] = device::Step<true>(__fadd_rn(x.at[i], y.at[i]));
  }
  return x;
}

// This thread's vectors of a pixel that is in the map; `there`: which of them the pixel has.
template <int kLanes>
__device__ __forceinline__ void LoadPixel(const Map& map, int64_t pixel,
                                          const bool (&there)[kVectors],
                                          uint4 (&vectors)[kVectors]) {
  const int lane = static_cast<int>(threadIdx.x % kLanes);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (there[i]) vectors[i] = device::LoadOnce(map.At(pixel, lane + i * kLanes));
  }
}

template <int kLanes, bool kSteps, bool kAdd>
__global__ void __launch_bounds__(kThreads, 3)
    ChannelNormKernel(const __grid_constant__ Arguments arguments) {
  constexpr int kPixels = kThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  bool there[kVectors];
  uint4 gamma[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    there[i] = lane + i * kLanes < arguments.vectors;
    gamma[i] = there[i] ? __ldg(arguments.gamma + lane + i * kLanes) : uint4{};
  }
  int64_t pixel = int64_t{blockIdx.x} * kPixels * kRounds + threadIdx.x / kLanes;
  // Two loads of each vector are under way at any time: with an addend those of one pixel, without
  // one this pixel's and the next one's, which takes the same registers.
  uint4 ahead[kVectors];
  if (!kAdd && pixel < arguments.pixels) LoadPixel<kLanes>(arguments.x, pixel, there, ahead);
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round, pixel += kPixels) {
    const bool in_map = pixel < arguments.pixels;
    uint4 loaded[kVectors];
    uint4 added[kVectors];
    if (kAdd) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (!in_map || !there[i]) continue;
        loaded[i] = device::LoadOnce(arguments.x.At(pixel, lane + i * kLanes));
        added[i] = device::LoadOnce(arguments.addend.At(pixel, lane + i * kLanes));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) loaded[i] = ahead[i];
      if (round + 1 < kRounds && pixel + kPixels < arguments.pixels) {
        LoadPixel<kLanes>(arguments.x, pixel + kPixels, there, ahead);
      }
    }
    device::Floats x[kVectors];
    float sums[kVectors] = {};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!in_map || !there[i]) continue;
      x[i] = kAdd ? Add(loaded[i], added[i]) : device::Widen(loaded[i]);
      sums[i] = device::VectorSum(x[i], device::Square{});
      if (kAdd && arguments.sum.data != nullptr) {
        *arguments.sum.At(pixel, lane + i * kLanes) = device::Narrow(x[i]);
      }
    }
    const device::Divisor divisor = device::DivisorOf(PixelSum<kLanes>(sums), kSmallestNorm);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!in_map || !there[i]) continue;
      const device::Floats weight = device::Widen(gamma[i]);
#pragma unroll
      for (int j = 0; j < device::kVector; ++j) {
        x[i].at[j] = device::ChannelNorm<kSteps>(x[i].at[j], divisor, arguments.root, weight.at[j],
                                                 arguments.silu);
      }
      *arguments.y.At(pixel, lane + i * kLanes) = device::Narrow(x[i]);
    }
  }
}

Map MapOf(const MatrixView& view) { return {static_cast<uint16_t*>(view.data), view.stride}; }

template <int kLanes, bool kSteps>
Status Launch(const Arguments& arguments, const Context& context) {
  constexpr int64_t kPixels = kThreads / kLanes * kRounds;
  const int64_t ctas = CeilDiv(arguments.pixels, kPixels);
  const auto kernel = arguments.addend.data != nullptr ? ChannelNormKernel<kLanes, kSteps, true>
                                                       : ChannelNormKernel<kLanes, kSteps, false>;
  return Enqueue("channel_norm", kernel, {ctas, kThreads, context.stream}, arguments);
}

}  // namespace

Status ChannelNorm(const ChannelNormParams& params, const Context& context) {
  if (params.x.rows == 0) return {};
  const int64_t channels = params.x.cols;
  const Arguments arguments = {.x = MapOf(params.x),
                               .addend = MapOf(params.addend),
                               .sum = MapOf(params.sum),
                               .y = MapOf(params.y),
                               .gamma = static_cast<const uint4*>(params.gamma.data),
                               .pixels = params.x.rows,
                               .vectors = static_cast<int32_t>(channels / device::kVector),
                               .root = static_cast<float>(std::sqrt(static_cast<double>(channels))),
                               .silu = params.silu};
  return WithSteps(params.rounding, [&](auto steps) {
    constexpr bool kSteps = decltype(steps)::value;
    constexpr int64_t kThread = kVectors * device::kVector;
    if (channels <= 4 * kThread) return Launch<4, kSteps>(arguments, context);
    if (channels <= 8 * kThread) return Launch<8, kSteps>(arguments, context);
    return Launch<16, kSteps>(arguments, context);
  });
}

}  // namespace segue::kernels::cuda
