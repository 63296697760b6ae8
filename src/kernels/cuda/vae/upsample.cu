// Doubling a map by vectors of 16 bytes: each is read once and written to four pixels.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/bf16.h"
#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/rows/launch.h"
#include "kernels/cuda/rows/line.h"
#include "kernels/cuda/vae/vae.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kVectors = 2;  // a thread: with the addend 64 bytes of loads in flight

struct Arguments {
  Line line;  // of x
  Place x;
  Place addend;  // data 0: none
  Place y;
  uint32_t width;
};

__device__ __forceinline__ uint4 Add(uint4 a, uint4 b) {
  device::Floats x = device::Widen(a);
  const device::Floats y = device::Widen(b);
#pragma unroll
  for (int i = 0; i < device::kVector; ++i) x.at[i] = __fadd_rn(x.at[i], y.at[i]);
  return device::Narrow(x);
}

template <bool kAdd>
__global__ void __launch_bounds__(kThreads)
    UpsampleKernel(const __grid_constant__ Arguments arguments) {
  const uint64_t first = uint64_t{blockIdx.x} * (kThreads * kVectors) + threadIdx.x;
  RowAndOffset places[kVectors];
  uint4 values[kVectors];
  uint4 addends[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    places[i] = PlaceInLine(arguments.line, first + i * kThreads);
    if (!places[i].there) continue;
    values[i] = device::LoadOnce(arguments.x.At(places[i]));
    if (kAdd) addends[i] = device::LoadOnce(arguments.addend.At(places[i]));
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!places[i].there) continue;
    const uint4 value = kAdd ? Add(values[i], addends[i]) : values[i];
    const uint32_t row = places[i].row / arguments.width;
    const uint32_t col = places[i].row % arguments.width;
    RowAndOffset to = places[i];
    to.row = 4 * row * arguments.width + 2 * col;
    *arguments.y.At(to) = value;
    ++to.row;
    *arguments.y.At(to) = value;
    to.row += 2 * arguments.width - 1;
    *arguments.y.At(to) = value;
    ++to.row;
    *arguments.y.At(to) = value;
  }
}

}  // namespace

Status Upsample(const UpsampleParams& params, const Context& context) {
  if (params.x.rows == 0) return {};
  const bool add = params.addend.data != nullptr;
  const Arguments arguments = {.line = LineOf(params.x),
                               .x = PlaceOf(params.x),
                               .addend = PlaceOf(params.addend),
                               .y = PlaceOf(params.y),
                               .width = static_cast<uint32_t>(params.width)};
  const int64_t ctas = CeilDiv(VectorsOf(params.x), kThreads * kVectors);
  return Enqueue("upsample", add ? UpsampleKernel<true> : UpsampleKernel<false>,
                 {ctas, kThreads, context.stream}, arguments);
}

}  // namespace segue::kernels::cuda
