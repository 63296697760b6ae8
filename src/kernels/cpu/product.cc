#include "kernels/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/dtype.h"

namespace segue::kernels::cpu {
namespace {

void RunProduct(const ProductCode& code, const ProductParams& params, ThreadPool& pool) {
  if (params.y.rows == 0 || params.y.cols == 0) return;
  const ProductBlocks blocks =
      ChooseBlocks({.rows = params.y.rows, .cols = params.y.cols, .depth = params.depth},
                   code.limits, pool.threads());
  const auto body = [&](int64_t task, int worker) {
    code.run_task(params, blocks, task, pool.Scratch(worker));
  };
  pool.ForEach(blocks.tasks(), std::cref(body));
}

Status RunLinear(const ProductCode& code, const LinearParams& params, const Context& context) {
  RunProduct(code,
             {.x = params.x,
              .depth = params.x.cols,
              .weight = params.weight,
              .bias = params.bias,
              .residual = params.accumulate ? params.y : MatrixView{},
              .y = params.y,
              .rounding = params.rounding,
              .activation = params.activation},
             context.stream.pool());
  return {};
}

// The last temporal tap of output channels [begin, end), reordered to [out][tap][in].
template <typename T>
void ReorderWeights(const WeightView& weight, int64_t begin, int64_t end, T* out) {
  const int rank = weight.shape.rank();
  const int64_t channels = weight.shape[1];
  const int64_t frames = rank == 5 ? weight.shape[2] : 1;
  const int64_t taps = weight.shape[rank - 1] * weight.shape[rank - 2];
  const T* source = static_cast<const T*>(weight.data) + begin * channels * frames * taps;
  for (int64_t row = begin; row < end; ++row, out += taps * channels) {
    for (int64_t channel = 0; channel < channels; ++channel, source += frames * taps) {
      const T* last = source + (frames - 1) * taps;
      for (int64_t tap = 0; tap < taps; ++tap) out[tap * channels + channel] = last[tap];
    }
  }
}

// Reordered weights lie in the upper half of the first worker's scratch, which a product's tasks
// leave alone; as many output channels are taken at once as fit.
constexpr int64_t kReorderedBytes = ThreadPool::kScratchBytes / 2;

Status RunConv2d(const ProductCode& code, const Conv2dParams& params, const Context& context) {
  ThreadPool& pool = context.stream.pool();
  const Shape& shape = params.weight.shape;
  const int64_t taps = shape[shape.rank() - 1];
  const int64_t depth = taps * taps * shape[1];
  const auto element = static_cast<int64_t>(SizeOf(params.weight.dtype));
  const bool in_order = depth * shape[0] == shape.NumElements() && taps == 1;
  const int64_t most = in_order ? shape[0] : kReorderedBytes / (depth * element);
  void* reordered = static_cast<char*>(pool.Scratch(0)) + kReorderedBytes;
  for (int64_t begin = 0; begin < shape[0]; begin += most) {
    const int64_t count = std::min(most, shape[0] - begin);
    WeightView weight = {
        .data = params.weight.data, .dtype = params.weight.dtype, .shape = {count, depth}};
    if (!in_order) {
      weight.data = reordered;
      if (element == 2) {
        ReorderWeights(params.weight, begin, begin + count, static_cast<uint16_t*>(reordered));
      } else {
        ReorderWeights(params.weight, begin, begin + count, static_cast<float*>(reordered));
      }
    }
    ProductParams product = {.x = params.x,
                             .window = {.height = params.height,
                                        .width = params.width,
                                        .doublings = params.upsample ? 1 : 0,
                                        .taps = taps},
                             .depth = depth,
                             .weight = weight,
                             .bias = params.bias,
                             .y = params.y.Cols(begin, count),
                             .rounding = params.rounding};
    if (params.bias.present()) {
      const auto size = static_cast<int64_t>(SizeOf(params.bias.dtype));
      product.bias.data = static_cast<const char*>(params.bias.data) + begin * size;
      product.bias.shape = {count};
    }
    if (params.residual.data != nullptr) product.residual = params.residual.Cols(begin, count);
    RunProduct(code, product, pool);
  }
  return {};
}

}  // namespace

Status LinearAvx2(const LinearParams& params, const Context& context) {
  return RunLinear(kProductAvx2, params, context);
}

Status LinearAvx512(const LinearParams& params, const Context& context) {
  return RunLinear(kProductAvx512, params, context);
}

bool Conv2dFits(const Conv2dParams& params) {
  const Shape& shape = params.weight.shape;
  const int64_t taps = shape[shape.rank() - 1] * shape[shape.rank() - 2];
  return taps * shape[1] * static_cast<int64_t>(SizeOf(params.weight.dtype)) <= kReorderedBytes;
}

Status Conv2dAvx2(const Conv2dParams& params, const Context& context) {
  return RunConv2d(kProductAvx2, params, context);
}

Status Conv2dAvx512(const Conv2dParams& params, const Context& context) {
  return RunConv2d(kProductAvx512, params, context);
}

}  // namespace segue::kernels::cpu
