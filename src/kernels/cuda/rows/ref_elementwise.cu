// The plain kernels of what is done to each element alone.
#include <cuda_runtime.h>

#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/views.h"

namespace segue::kernels::cuda {
namespace {

__global__ void ActivateKernel(Matrix x, Matrix y, Activation activation) {
  const int64_t row = ItemIndex() / x.cols;
  const int64_t col = ItemIndex() % x.cols;
  if (row >= x.rows) return;
  float value = device::Widen(x.Row(row)[col]);
  if (activation == Activation::kGeluTanh) value = device::GeluTanh(value);
  if (activation == Activation::kSilu) value = device::Silu(value);
  y.Row(row)[col] = device::Narrow(value);
}

__global__ void AddKernel(Matrix a, Matrix b, Matrix y) {
  const int64_t row = ItemIndex() / y.cols;
  const int64_t col = ItemIndex() % y.cols;
  if (row >= y.rows) return;
  y.Row(row)[col] =
      device::Narrow(__fadd_rn(device::Widen(a.Row(row)[col]), device::Widen(b.Row(row)[col])));
}

template <bool kSteps>
__global__ void SiluMulKernel(Matrix gate, Matrix up, Matrix y) {
  const int64_t row = ItemIndex() / y.cols;
  const int64_t col = ItemIndex() % y.cols;
  if (row >= y.rows) return;
  y.Row(row)[col] =
      static_cast<uint16_t>(device::SiluMul<kSteps>(gate.Row(row)[col], up.Row(row)[col]));
}

template <bool kSteps>
__global__ void GateResidualKernel(Matrix y, Table gate, Matrix h) {
  const int64_t row = ItemIndex() / h.cols;
  const int64_t col = ItemIndex() % h.cols;
  if (row >= h.rows) return;
  uint16_t& value = h.Row(row)[col];
  value = static_cast<uint16_t>(
      device::GateResidual<kSteps>(value, gate.For(row)[col], y.Row(row)[col]));
}

template <bool kSteps>
__global__ void EulerStepKernel(Matrix x, Matrix v, float dt) {
  const int64_t row = ItemIndex() / x.cols;
  const int64_t col = ItemIndex() % x.cols;
  if (row >= x.rows) return;
  uint16_t& value = x.Row(row)[col];
  value = device::Narrow(
      device::EulerStep<kSteps>(device::Widen(value), device::Widen(v.Row(row)[col]), dt));
}

}  // namespace

Status RefActivate(const ActivationParams& params, const Context& context) {
  return EnqueueItems("activate", ActivateKernel, params.x.rows * params.x.cols, context,
                      MatrixOf(params.x), MatrixOf(params.y), params.activation);
}

Status RefAdd(const AddParams& params, const Context& context) {
  return EnqueueItems("add", AddKernel, params.y.rows * params.y.cols, context, MatrixOf(params.a),
                      MatrixOf(params.b), MatrixOf(params.y));
}

Status RefSiluMul(const SiluMulParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("silu_mul", SiluMulKernel<steps()>, params.y.rows * params.y.cols, context,
                        MatrixOf(params.gate), MatrixOf(params.up), MatrixOf(params.y));
  });
}

Status RefGateResidual(const GateResidualParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("gate_residual", GateResidualKernel<steps()>, params.h.rows * params.h.cols,
                        context, MatrixOf(params.y), TableOf(params.gate), MatrixOf(params.h));
  });
}

Status RefEulerStep(const EulerStepParams& params, const Context& context) {
  return WithSteps(params.rounding, [&](auto steps) {
    return EnqueueItems("euler_step", EulerStepKernel<steps()>, params.x.rows * params.x.cols,
                        context, MatrixOf(params.x), MatrixOf(params.v), params.dt);
  });
}

}  // namespace segue::kernels::cuda
