// The plain kernels of normalisation and rotation: a warp a row or a head.
#include <cuda_runtime.h>

#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/device/row_sum.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

template <bool kSteps>
__global__ void LayerNormKernel(Matrix x, Matrix y, Table scale, Table shift, float eps) {
  const int64_t row = WarpIndex();
  if (row >= x.rows) return;
  const uint16_t* from = x.Row(row);
  const auto at = [from](int64_t i) { return device::Widen(from[i]); };
  const float inverse_count = __frcp_rn(static_cast<float>(x.cols));
  const float mean = __fmul_rn(device::WarpRowSum(x.cols, device::Plain{}, at), inverse_count);
  const float squares = device::WarpRowSum(x.cols, device::SquareAround{mean}, at);
  const float inverse = device::InverseDeviation(squares, inverse_count, eps);
  for (int64_t i = LaneIndex(); i < x.cols; i += 32) {
    const float value = device::Normalize(at(i), mean, inverse);
    y.Row(row)[i] = scale.data == nullptr ? device::Narrow(value)
                                          : static_cast<uint16_t>(device::Modulate<kSteps>(
                                                value, 0.0f, scale.For(row)[i], shift.For(row)[i]));
  }
}

// x * inverse * weight[i].
template <bool kSteps>
__device__ float Weigh(float x, float inverse, const Weight& weight, int64_t i) {
  const float value = __fmul_rn(x, inverse);
  if (weight.dtype != DType::kBF16) return device::WeightFloat<kSteps>(value, weight.At(i));
  return device::WeightFloats<kSteps>(value, 0.0f, static_cast<const uint16_t*>(weight.data)[i]).x;
}

template <bool kSteps>
__global__ void RmsNormKernel(Matrix x, Weight weight, Matrix y, float eps) {
  const int64_t row = WarpIndex();
  if (row >= x.rows) return;
  const uint16_t* from = x.Row(row);
  const auto at = [from](int64_t i) { return device::Widen(from[i]); };
  const float squares = device::WarpRowSum(x.cols, device::Square{}, at);
  const float inverse =
      device::InverseDeviation(squares, __frcp_rn(static_cast<float>(x.cols)), eps);
  for (int64_t i = LaneIndex(); i < x.cols; i += 32) {
    y.Row(row)[i] = device::Narrow(Weigh<kSteps>(at(i), inverse, weight, i));
  }
}

template <bool kSteps>
__global__ void QkNormRopeKernel(Matrix x, int32_t head_dim, Weight weight, float eps, Rope rope) {
  const int64_t heads = x.cols / head_dim;
  const int64_t row = WarpIndex() / heads;
  if (row >= x.rows) return;
  uint16_t* head = x.Row(row) + WarpIndex() % heads * head_dim;
  const auto at = [head](int64_t i) { return device::Widen(head[i]); };
  float inverse = 0.0f;
  if (weight.data != nullptr) {
    const float squares = device::WarpRowSum(head_dim, device::Square{}, at);
    inverse = device::InverseDeviation(squares, __frcp_rn(static_cast<float>(head_dim)), eps);
  }
  for (int64_t k = LaneIndex(); k < head_dim / 2; k += 32) {
    float2 pair = {at(2 * k), at(2 * k + 1)};
    if (weight.data != nullptr) {
      pair = {Weigh<kSteps>(pair.x, inverse, weight, 2 * k),
              Weigh<kSteps>(pair.y, inverse, weight, 2 * k + 1)};
    }
    if (rope.cos != nullptr) {
      const int64_t angle = rope.RowFor(row) * (head_dim / 2) + k;
      pair = device::Rotate(pair.x, pair.y, rope.cos[angle], rope.sin[angle]);
    }
    head[2 * k] = device::Narrow(pair.x);
    head[2 * k + 1] = device::Narrow(pair.y);
  }
}

// A thread a pair.
template <bool kSteps>
__global__ void RopeHalfKernel(Matrix x, int32_t head_dim, Rope rope) {
  const int64_t half = head_dim / 2;
  const int64_t pairs = x.cols / 2;
  const int64_t row = ItemIndex() / pairs;
  if (row >= x.rows) return;
  const int64_t pair = ItemIndex() % pairs;
  const int64_t k = pair % half;
  uint16_t* head = x.Row(row) + pair / half * head_dim;
  const int64_t angle = rope.RowFor(row) * half + k;
  const float2 turned = device::RotateInSteps<kSteps>(
      device::Widen(head[k]), device::Widen(head[k + half]), rope.cos[angle], rope.sin[angle]);
  head[k] = device::Narrow(turned.x);
  head[k + half] = device::Narrow(turned.y);
}

}  // namespace

Status RefLayerNorm(const LayerNormParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueWarps("layer_norm", LayerNormKernel<steps()>, params.x.rows, context,
                        MatrixOf(params.x), MatrixOf(params.y), TableOf(params.scale),
                        TableOf(params.shift), params.eps);
  });
}

Status RefRmsNorm(const RmsNormParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueWarps("rms_norm", RmsNormKernel<steps()>, params.x.rows, context,
                        MatrixOf(params.x), WeightOf(params.weight), MatrixOf(params.y),
                        params.eps);
  });
}

Status RefQkNormRope(const QkNormRopeParams& params, const Context& context) {
  const int64_t heads = params.x.cols / params.head_dim;
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueWarps("qk_norm_rope", QkNormRopeKernel<steps()>, params.x.rows * heads, context,
                        MatrixOf(params.x), params.head_dim, WeightOf(params.weight), params.eps,
                        RopeOf(params.rope));
  });
}

Status RefRopeHalf(const RopeHalfParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("rope_half", RopeHalfKernel<steps()>, params.x.rows * params.x.cols / 2,
                        context, MatrixOf(params.x), params.head_dim, RopeOf(params.rope));
  });
}

}  // namespace segue::kernels::cuda
