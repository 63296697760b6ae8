// The sum of two ranks: each reads the other's partial sums over the link and adds its own.
#include <cuda_runtime.h>

#include "kernels/cuda/comm/launch.h"
#include "kernels/cuda/comm/meeting.h"
#include "kernels/cuda/comm/reduce.h"
#include "kernels/cuda/comm/sums.h"
#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/grid_order.h"

namespace segue::kernels::cuda {
namespace {

struct OneShotArguments {
  PeerGroup group;
  AllReducePart parts[kMaxReduceParts];
  int32_t part_count;
  uint64_t bytes;
};

template <class Sum, int kUnroll>
__device__ __forceinline__ void SumPart(const PeerGroup& group, const AllReducePart& part) {
  const auto* near = reinterpret_cast<const uint4*>(group.arena[group.rank] + part.offset);
  const auto* far = reinterpret_cast<const uint4*>(group.arena[1 - group.rank] + part.offset);
  auto* sum = static_cast<uint4*>(part.sum);
  const auto count = static_cast<uint32_t>(part.bytes / kVectorBytes);
  const uint32_t step = gridDim.x * blockDim.x;
  for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += kUnroll * step) {
    uint4 theirs[kUnroll];
    uint4 ours[kUnroll];
#pragma unroll
    for (uint32_t i = 0; i < kUnroll; ++i) {
      if (at + i * step < count) theirs[i] = device::LoadPeer(far + at + i * step);
    }
#pragma unroll
    for (uint32_t i = 0; i < kUnroll; ++i) {
      if (at + i * step < count) ours[i] = device::LoadPeer(near + at + i * step);
    }
#pragma unroll
    for (uint32_t i = 0; i < kUnroll; ++i) {
      if (at + i * step < count) sum[at + i * step] = Sum::OfTwo(ours[i], theirs[i]);
    }
  }
}

// Two CTAs of 512 threads an SM: 64 registers.
template <class Sum, int kUnroll>
__global__ void __launch_bounds__(kMaxReduceThreads, kReduceCtasPerSm)
    OneShotKernel(const __grid_constant__ OneShotArguments arguments) {
  device::WaitForPreviousKernel();
  const PeerGroup& group = arguments.group;
  if (group.ranks == 0) return;
  Meeting meeting(group, arguments.bytes);
  const bool met = meeting.MeetArrived();
  meeting.Finish();
  for (int i = 0; i < arguments.part_count; ++i) {
    if (met) {
      SumPart<Sum, kUnroll>(group, arguments.parts[i]);
    } else {
      PoisonPart(arguments.parts[i].sum, arguments.parts[i].bytes);
    }
  }
}

// run(kernel) with the instantiation for a dtype and an unrolling.
template <class Run>
auto WithKernel(DType dtype, int32_t unroll, const Run& run) {
  if (dtype == DType::kF32) return run(OneShotKernel<FloatSum, 4>);
  switch (unroll) {
    case 1:
      return run(OneShotKernel<BFloat16Sum, 1>);
    case 2:
      return run(OneShotKernel<BFloat16Sum, 2>);
    default:
      return run(OneShotKernel<BFloat16Sum, 4>);
  }
}

}  // namespace

cudaError_t OneShotRoom(int32_t threads, int32_t* ctas) {
  return SmallestRoom(ctas, [&](DType dtype, int32_t unroll, int32_t* room) {
    return WithKernel(dtype, unroll, [&](auto kernel) { return RoomOf(kernel, threads, room); });
  });
}

}  // namespace segue::kernels::cuda

namespace segue::kernels {

Status OneShotAllReduce(const AllReduceParams& params, const Context& context) {
  cuda::OneShotArguments arguments = {.group = params.group, .part_count = params.part_count};
  for (int i = 0; i < params.part_count; ++i) {
    arguments.parts[i] = params.parts[i];
    arguments.bytes += static_cast<uint64_t>(params.parts[i].bytes);
  }
  const cuda::Grid grid = cuda::GridOf(params, context);
  return cuda::WithKernel(params.dtype, params.tuning.unroll, [&](auto kernel) {
    return cuda::Enqueue("all_reduce", kernel, grid, arguments);
  });
}

}  // namespace segue::kernels
