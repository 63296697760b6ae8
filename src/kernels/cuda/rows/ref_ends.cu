// The plain kernels at the two ends of a forward: embeddings, row indices, latents, pixels. A
// thread an element that is written.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

__global__ void EmbeddingKernel(const int32_t* ids, Weight table, int64_t table_rows, Matrix y) {
  const int64_t row = ItemIndex() / y.cols;
  const int64_t col = ItemIndex() % y.cols;
  if (row >= y.rows) return;
  y.Row(row)[col] = device::Narrow(table.At(Clamped(ids[row], table_rows) * y.cols + col));
}

// In float64 where a float32 function would be off by an ulp, which an angle of 1000 radians shows.
__global__ void TimestepEmbeddingKernel(const float* timesteps, Matrix y, float scale,
                                        float minus_log_period) {
  const int64_t half = y.cols / 2;
  const int64_t row = ItemIndex() / half;
  const int64_t i = ItemIndex() % half;
  if (row >= y.rows) return;
  const float exponent =
      __fdiv_rn(__fmul_rn(minus_log_period, static_cast<float>(i)), static_cast<float>(half));
  const auto frequency = static_cast<float>(exp(static_cast<double>(exponent)));
  const float angle = __fmul_rn(scale, __fmul_rn(timesteps[row], frequency));
  double sine = 0.0;
  double cosine = 0.0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  y.Row(row)[i] = device::Narrow(static_cast<float>(cosine));
  y.Row(row)[half + i] = device::Narrow(static_cast<float>(sine));
}

__global__ void RowIndexKernel(RowIndexParams params) {
  const int64_t m = ItemIndex();
  if (m >= params.count) return;
  params.index[m] = params.entry[Clamped(params.slot[m], params.slots)];
}

// The pixel of a token's column in the latent grid (latents.h).
struct LatentPixel {
  int64_t channel;
  int64_t row;
  int64_t col;
};
__device__ LatentPixel PixelOf(int64_t token, int64_t column, int64_t grid_width) {
  return {column / 4, token / grid_width * 2 + column / 2 % 2, token % grid_width * 2 + column % 2};
}

__global__ void PackLatentsKernel(const float* latents, int64_t grid_width, Matrix tokens) {
  const int64_t token = ItemIndex() / tokens.cols;
  const int64_t column = ItemIndex() % tokens.cols;
  if (token >= tokens.rows) return;
  const LatentPixel pixel = PixelOf(token, column, grid_width);
  const int64_t pixels = tokens.rows * 4;
  tokens.Row(token)[column] =
      device::Narrow(latents[pixel.channel * pixels + pixel.row * (2 * grid_width) + pixel.col]);
}

struct LatentStatistics {
  bool present;
  float mean[kMaxLatentChannels];
  float inverse[kMaxLatentChannels];  // 1 / std
};

template <bool kSteps>
__global__ void UnpackLatentsKernel(Matrix tokens, int64_t grid_width, Matrix grid,
                                    const __grid_constant__ LatentStatistics statistics) {
  const int64_t token = ItemIndex() / tokens.cols;
  const int64_t column = ItemIndex() % tokens.cols;
  if (token >= tokens.rows) return;
  const LatentPixel pixel = PixelOf(token, column, grid_width);
  float value = device::Widen(tokens.Row(token)[column]);
  if (statistics.present) {
    value = device::Step<kSteps>(__fdiv_rn(value, statistics.inverse[pixel.channel]));
    value = __fadd_rn(value, statistics.mean[pixel.channel]);
  }
  grid.Row(pixel.row * (2 * grid_width) + pixel.col)[pixel.channel] = device::Narrow(value);
}

template <bool kSteps>
__global__ void PixelsKernel(Matrix x, uint8_t* pixels) {
  const int64_t row = ItemIndex() / x.cols;
  const int64_t col = ItemIndex() % x.cols;
  if (row >= x.rows) return;
  // A NaN fails every comparison and comes out as 0.
  const float sample = device::Widen(x.Row(row)[col]);
  const float clamped = sample > 1.0f ? 1.0f : sample < -1.0f ? -1.0f : sample;
  const float half = device::Step<kSteps>(__fmul_rn(clamped, 0.5f));
  const float value = device::Step<kSteps>(__fadd_rn(half, 0.5f));
  const float level = rintf(__fmul_rn(value, 255.0f));
  pixels[row * x.cols + col] = level > 0.0f ? static_cast<uint8_t>(level) : uint8_t{0};
}

}  // namespace

Status RefEmbedding(const EmbeddingParams& params, const Context& context) {
  return EnqueueItems("embedding", EmbeddingKernel, params.y.rows * params.y.cols, context,
                      params.ids, WeightOf(params.table), params.table.shape[0],
                      MatrixOf(params.y));
}

Status RefTimestepEmbedding(const TimestepEmbeddingParams& params, const Context& context) {
  const auto minus_log_period =
      static_cast<float>(-std::log(static_cast<double>(params.max_period)));
  return EnqueueItems("timestep_embedding", TimestepEmbeddingKernel,
                      params.y.rows * (params.y.cols / 2), context, params.timesteps,
                      MatrixOf(params.y), params.scale, minus_log_period);
}

Status RefRowIndex(const RowIndexParams& params, const Context& context) {
  return EnqueueItems("row_index", RowIndexKernel, params.count, context, params);
}

Status RefPackLatents(const PackLatentsParams& params, const Context& context) {
  return EnqueueItems("pack_latents", PackLatentsKernel, params.tokens.rows * params.tokens.cols,
                      context, params.latents, params.grid_width, MatrixOf(params.tokens));
}

Status RefUnpackLatents(const UnpackLatentsParams& params, const Context& context) {
  LatentStatistics statistics = {.present = params.mean != nullptr};
  const auto round = [&params](float value) {
    return params.rounding == Rounding::kBF16 ? RoundToBF16(value) : value;
  };
  for (int64_t i = 0; statistics.present && i < params.grid.cols; ++i) {
    statistics.mean[i] = round(params.mean[i]);
    statistics.inverse[i] = round(1.0f / round(params.std[i]));
  }
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("unpack_latents", UnpackLatentsKernel<steps()>,
                        params.tokens.rows * params.tokens.cols, context, MatrixOf(params.tokens),
                        params.grid_width, MatrixOf(params.grid), statistics);
  });
}

Status RefPixels(const PixelsParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("pixels", PixelsKernel<steps()>, params.x.rows * params.x.cols, context,
                        MatrixOf(params.x), params.pixels);
  });
}

}  // namespace segue::kernels::cuda
