// Activations as streams of 16-byte vectors.
//
// As in packing (pack/rows.cu), the vectors of a matrix form one line, of which a CTA takes the
// next kVectorsPerCta, so that every thread has the same loads in flight whatever the width.
#include <cuda_runtime.h>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/grid_order.h"
#include "kernels/cuda/device/row_math.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/line.h"
#include "kernels/cuda/rows/rows.h"

namespace segue::kernels::cuda {
namespace {

// As many loads in flight as a copy has (pack/vectors.h), by more and smaller CTAs: arithmetic of
// one hides the waits of another.
constexpr int32_t kThreads = 256;
constexpr int32_t kVectorsPerThread = 2;
constexpr int32_t kVectorsPerCta = kThreads * kVectorsPerThread;
constexpr int32_t kCtasPerSm = 8;

struct ActivateArguments {
  struct Stream {
    Line line;
    Place x;
    Place y;
  };
  Stream streams[kMaxActivationStreams];
  uint32_t first_ctas;  // of the first stream; the rest are the second's
};

template <Activation kActivation>
__device__ __forceinline__ uint4 Apply(uint4 packed) {
  device::Floats x = device::Widen(packed);
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) {
    if (kActivation == Activation::kGeluTanh) x.at[i] = device::GeluTanh(x.at[i]);
    if (kActivation == Activation::kSilu) x.at[i] = device::Silu(x.at[i]);
  }
  return device::Narrow(x);
}

template <Activation kActivation>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    ActivateKernel(const __grid_constant__ ActivateArguments arguments) {
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const bool second = blockIdx.x >= arguments.first_ctas;
  const ActivateArguments::Stream& stream = arguments.streams[second ? 1 : 0];
  const uint64_t first =
      uint64_t{blockIdx.x - (second ? arguments.first_ctas : 0)} * kVectorsPerCta + threadIdx.x;
  RowAndOffset places[kVectorsPerThread];
  uint4 values[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    places[i] = PlaceInLine(stream.line, first + i * kThreads);
    if (places[i].there) values[i] = device::LoadOnce(stream.x.At(places[i]));
  }
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (places[i].there) *stream.y.At(places[i]) = Apply<kActivation>(values[i]);
  }
}

struct SiluMulArguments {
  Line line;
  Place gate;
  Place up;
  Place y;
};

// A gate and an up vector.
constexpr int32_t kPairsPerThread = 1;

template <bool kSteps>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    SiluMulKernel(const __grid_constant__ SiluMulArguments arguments) {
  device::LetNextKernelStart();
  device::WaitForPreviousKernel();
  const uint64_t first = uint64_t{blockIdx.x} * (kThreads * kPairsPerThread) + threadIdx.x;
  RowAndOffset places[kPairsPerThread];
  uint4 gates[kPairsPerThread];
  uint4 ups[kPairsPerThread];
#pragma unroll
  for (int i = 0; i < kPairsPerThread; ++i) {
    places[i] = PlaceInLine(arguments.line, first + i * kThreads);
    if (!places[i].there) continue;
    gates[i] = device::LoadOnce(arguments.gate.At(places[i]));
    ups[i] = device::LoadOnce(arguments.up.At(places[i]));
  }
#pragma unroll
  for (int i = 0; i < kPairsPerThread; ++i) {
    if (!places[i].there) continue;
#pragma unroll
    for (int j = 0; j < device::kPairs; ++j) {
      uint32_t& pair = device::PairAt(gates[i], j);
      pair = device::SiluMul<kSteps>(pair, device::PairAt(ups[i], j));
    }
    *arguments.y.At(places[i]) = gates[i];
  }
}

}  // namespace

Status ActivateStreams(const ActivationStreams& params, const Context& context) {
  ActivateArguments arguments = {};
  int64_t ctas = 0;
  for (size_t i = 0; i < params.streams.size(); ++i) {
    const ActivationParams& stream = params.streams[i];
    arguments.streams[i] = {LineOf(stream.x), PlaceOf(stream.x), PlaceOf(stream.y)};
    ctas += CeilDiv(VectorsOf(stream.x), kVectorsPerCta);
    if (i == 0) arguments.first_ctas = static_cast<uint32_t>(ctas);
  }
  if (ctas == 0) return {};
  const Activation activation = params.streams[0].activation;
  const auto kernel = activation == Activation::kGeluTanh ? ActivateKernel<Activation::kGeluTanh>
                      : activation == Activation::kSilu   ? ActivateKernel<Activation::kSilu>
                                                          : ActivateKernel<Activation::kNone>;
  return Enqueue("activate", kernel, {ctas, kThreads, context.stream, true}, arguments);
}

Status Activate(const ActivationParams& params, const Context& context) {
  return cuda::ActivateStreams({.streams = {&params, 1}}, context);
}

Status SiluMul(const SiluMulParams& params, const Context& context) {
  const SiluMulArguments arguments = {LineOf(params.y), PlaceOf(params.gate), PlaceOf(params.up),
                                      PlaceOf(params.y)};
  const int64_t ctas = CeilDiv(VectorsOf(params.y), kThreads * kPairsPerThread);
  if (ctas == 0) return {};
  return WithSteps(params.rounding, [&](auto steps) {
    return Enqueue("silu_mul", SiluMulKernel<steps()>, {ctas, kThreads, context.stream, true},
                   arguments);
  });
}

}  // namespace segue::kernels::cuda
