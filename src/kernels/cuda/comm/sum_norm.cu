// The sum of two ranks fused with what follows it in a block: a CTA has a row of both ranks'
// partial sums in registers and finishes it, so that the sum itself is never in memory.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/comm/launch.h"
#include "kernels/cuda/comm/meeting.h"
#include "kernels/cuda/comm/reduce.h"
#include "kernels/cuda/comm/sums.h"
#include "kernels/cuda/device/grid_order.h"
#include "kernels/cuda/rows/norm_row.h"

namespace segue::kernels::cuda {
namespace {

// Of 512 threads an SM, which leaves 64 registers: 5 CTAs of the 192 threads that rows of 3072
// have. With 40 registers and 8 CTAs the row spills.
constexpr int32_t kRowCtasPerSm = 2;

struct SumNormArguments {
  PeerGroup group;
  NormStream streams[kMaxReduceParts];  // without their branches
  int64_t offsets[kMaxReduceParts];     // which lie there in the arenas
  int64_t first_rows;                   // of the first stream; the rest are the second's
  int64_t rows;                         // of both
  NormShape shape;
  uint64_t bytes;
};

__device__ __forceinline__ void PoisonRow(const NormStream& stream, const NormShape& shape,
                                          int64_t row) {
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    if (Own(i) >= shape.vectors) continue;
    *VectorAt(stream.h + row * stream.h_stride, Own(i)) = Poison();
    *VectorAt(stream.y + row * stream.y_stride, Own(i)) = Poison();
  }
}

// The row's residual, and the sum of both ranks' partial sums of it.
__device__ __forceinline__ void LoadRow(const PeerGroup& group, const NormStream& stream,
                                        const NormShape& shape, int64_t row, int64_t offset,
                                        NormVectors& x, NormVectors& branch) {
  const char* own = group.arena[group.rank] + offset;
  const char* peer = group.arena[1 - group.rank] + offset;
  NormVectors far;
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    if (Own(i) >= shape.vectors) continue;
    far[i] = device::LoadPeer(peer + (row * shape.vectors + Own(i)) * kVectorBytes);
  }
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    x[i] = {0, 0, 0, 0};
    if (Own(i) >= shape.vectors) continue;
    branch[i] = device::LoadPeer(own + (row * shape.vectors + Own(i)) * kVectorBytes);
    x[i] = device::LoadOnce(VectorAt(stream.h + row * stream.h_stride, Own(i)));
  }
#pragma unroll
  for (int i = 0; i < kNormVectorsPerThread; ++i) {
    if (Own(i) < shape.vectors) branch[i] = BFloat16Sum::OfTwo(branch[i], far[i]);
  }
}

template <bool kSteps>
__global__ void __launch_bounds__(kMaxNormThreads, kRowCtasPerSm)
    SumNormKernel(const __grid_constant__ SumNormArguments arguments) {
  __shared__ NormSlots slots;
  device::WaitForPreviousKernel();
  const PeerGroup& group = arguments.group;
  if (group.ranks == 0) return;
  Meeting meeting(group, arguments.bytes);
  const bool met = meeting.MeetArrived();
  meeting.Finish();
  for (int64_t at = blockIdx.x; at < arguments.rows; at += gridDim.x) {
    const int which = at >= arguments.first_rows ? 1 : 0;
    const NormStream& stream = arguments.streams[which];
    const int64_t row = at - (which == 1 ? arguments.first_rows : 0);
    if (!met) {
      PoisonRow(stream, arguments.shape, row);
      continue;
    }
    NormVectors x;
    NormVectors branch;
    LoadRow(group, stream, arguments.shape, row, arguments.offsets[which], x, branch);
    // Its two sums meet twice: the next row's first finds the slots of this one's first read.
    FinishNormRow<kSteps>(stream, arguments.shape, row, true, x, branch, slots);
  }
}

}  // namespace

cudaError_t SumNormRoom(int32_t threads, int32_t* ctas) {
  int32_t rooms[2] = {};
  cudaError_t status = RoomOf(SumNormKernel<true>, threads, &rooms[0]);
  if (status == cudaSuccess) status = RoomOf(SumNormKernel<false>, threads, &rooms[1]);
  *ctas = rooms[0] < rooms[1] ? rooms[0] : rooms[1];
  return status;
}

}  // namespace segue::kernels::cuda

namespace segue::kernels {

int32_t SumNormWarps(int64_t cols) {
  return cuda::NormThreads(static_cast<int32_t>(cols / device::kVector)) / 32;
}

Status SumModulatedNorm(const SumNormParams& params, const Context& context) {
  cuda::SumNormArguments arguments = {.group = params.group};
  const auto streams = params.norm.streams;
  for (size_t i = 0; i < streams.size(); ++i) {
    arguments.streams[i] = cuda::NormStreamOf(streams[i]);
    arguments.offsets[i] = params.offsets[i];
    arguments.rows += streams[i].h.rows;
    arguments.bytes +=
        static_cast<uint64_t>(streams[i].h.rows * streams[i].h.cols) * sizeof(uint16_t);
    if (i == 0) arguments.first_rows = arguments.rows;
  }
  const int64_t cols = streams.empty() ? device::kVector : streams[0].h.cols;
  arguments.shape = cuda::NormShapeOf(cols, params.norm.eps);
  const int64_t ctas = std::clamp<int64_t>(arguments.rows, 1, std::max(params.ctas, 1));
  return cuda::WithSteps(params.norm.rounding, [&](auto steps) {
    return cuda::Enqueue("sum_modulated_norm", cuda::SumNormKernel<steps()>,
                         {ctas, cuda::NormThreads(arguments.shape.vectors), context.stream, true},
                         arguments);
  });
}

}  // namespace segue::kernels
