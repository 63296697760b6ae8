#include <cmath>

#include "kernels/check.h"
#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

namespace {

void NormHead(const QkNormRopeParams& params, float* head) {
  const int64_t dim = params.head_dim;
  const float squares =
      LaneSum(dim, [head](float sum, int64_t i) { return Scalar::Fma(head[i], head[i], sum); });
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(dim) + params.eps);
  for (int64_t i = 0; i < dim; ++i) {
    const float value =
        RoundStep<Scalar>(head[i] * inverse, params.rounding) * WeightAt(params.weight, i);
    // A step on the way to the rotation, where there is one.
    head[i] = params.rope.present() ? RoundStep<Scalar>(value, params.rounding)
                                    : Round<Scalar>(value, params.rounding);
  }
}

}  // namespace

Status RefQkNormRope(const QkNormRopeParams& params, const Context&) {
  const int64_t pairs = params.head_dim / 2;
  for (int64_t row = 0; row < params.x.rows; ++row) {
    for (int64_t first = 0; first < params.x.cols; first += params.head_dim) {
      float* head = params.x.Row<float>(row) + first;
      if (params.weight.present()) NormHead(params, head);
      if (!params.rope.present()) continue;
      const float* cos = params.rope.cos + params.rope.RowFor(row) * pairs;
      const float* sin = params.rope.sin + params.rope.RowFor(row) * pairs;
      for (int64_t k = 0; k < pairs; ++k) {
        const float a = head[2 * k];
        const float b = head[2 * k + 1];
        head[2 * k] = Round<Scalar>(a * cos[k] - b * sin[k], params.rounding);
        head[2 * k + 1] = Round<Scalar>(b * cos[k] + a * sin[k], params.rounding);
      }
    }
  }
  return {};
}

Status RefRopeHalf(const RopeHalfParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  const int64_t half = params.head_dim / 2;
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* cos = params.rope.cos + params.rope.RowFor(row) * half;
    const float* sin = params.rope.sin + params.rope.RowFor(row) * half;
    for (int64_t first = 0; first < params.x.cols; first += params.head_dim) {
      float* head = params.x.Row<float>(row) + first;
      for (int64_t k = 0; k < half; ++k) {
        const float c = RoundStep<Scalar>(cos[k], rounding);
        const float s = RoundStep<Scalar>(sin[k], rounding);
        const float a = head[k];
        const float b = head[k + half];
        head[k] = Round<Scalar>(
            RoundStep<Scalar>(a * c, rounding) - RoundStep<Scalar>(b * s, rounding), rounding);
        head[k + half] = Round<Scalar>(
            RoundStep<Scalar>(b * c, rounding) + RoundStep<Scalar>(a * s, rounding), rounding);
      }
    }
  }
  return {};
}

}  // namespace segue::kernels
