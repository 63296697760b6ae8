// The sum of several ranks: each adds up a slice of everybody's partial sums, puts it where the
// others find it, and collects their slices.
#include <cuda_runtime.h>

#include "kernels/cuda/comm/launch.h"
#include "kernels/cuda/comm/meeting.h"
#include "kernels/cuda/comm/reduce.h"
#include "kernels/cuda/comm/sums.h"
#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/device/grid_order.h"

namespace segue::kernels::cuda {
namespace {

struct TwoShotArguments {
  PeerGroup group;
  AllReducePart parts[kMaxReduceParts];
  int32_t part_count;
  uint64_t bytes;
};

// Rank r's slice of a part: vectors [r x slice, (r + 1) x slice) that the part has. CTA c works on
// the same vectors of every slice, as its counterparts do: what it collects, they have written.
struct Slices {
  int64_t slice;  // bytes
  int64_t bytes;  // of the part
  __device__ __forceinline__ Slices(const AllReducePart& part, int ranks)
      : slice((part.bytes / kVectorBytes + ranks - 1) / ranks * kVectorBytes), bytes(part.bytes) {}
  __device__ __forceinline__ bool Has(int rank, int64_t at) const {
    return at < slice && rank * slice + at < bytes;
  }
};

__device__ __forceinline__ int64_t FirstByte() {
  return (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVectorBytes;
}
__device__ __forceinline__ int64_t GridBytes() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x * kVectorBytes;
}

template <class Sum, int kRanks>
__device__ __forceinline__ void ReduceSlice(const PeerGroup& group, const AllReducePart& part,
                                            char* reduced) {
  const Slices slices(part, group.ranks);
  const int64_t begin = group.rank * slices.slice;
  for (int64_t at = FirstByte(); slices.Has(group.rank, at); at += GridBytes()) {
    uint4 x[kRanks];
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank < group.ranks)
        x[rank] = device::LoadPeer(group.arena[rank] + part.offset + begin + at);
    }
    Sum sum;
    sum.Begin(x[0]);
#pragma unroll
    for (int rank = 1; rank < kRanks; ++rank) {
      if (rank < group.ranks) sum.Add(x[rank]);
    }
    const uint4 rounded = sum.Rounded();
    *reinterpret_cast<uint4*>(reduced + at) = rounded;
    *reinterpret_cast<uint4*>(static_cast<char*>(part.sum) + begin + at) = rounded;
  }
}

template <int kRanks>
__device__ __forceinline__ void CollectSlices(const PeerGroup& group, const AllReducePart& part,
                                              int64_t reduced_offset) {
  const Slices slices(part, group.ranks);
  for (int64_t at = FirstByte(); at < slices.slice; at += GridBytes()) {
    uint4 x[kRanks];
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank < group.ranks && rank != group.rank && slices.Has(rank, at)) {
        x[rank] = device::LoadPeer(group.arena[rank] + reduced_offset + at);
      }
    }
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank < group.ranks && rank != group.rank && slices.Has(rank, at)) {
        char* to = static_cast<char*>(part.sum) + rank * slices.slice + at;
        *reinterpret_cast<uint4*>(to) = x[rank];
      }
    }
  }
}

template <class Sum, int kRanks>
__global__ void __launch_bounds__(kMaxReduceThreads, kReduceCtasPerSm)
    TwoShotKernel(const __grid_constant__ TwoShotArguments arguments) {
  device::WaitForPreviousKernel();
  const PeerGroup& group = arguments.group;
  if (group.ranks == 0) return;
  Meeting meeting(group, arguments.bytes);
  bool met = meeting.MeetArrived();
  int64_t offset = group.reduced_offset;
  for (int i = 0; i < arguments.part_count && met; ++i) {
    ReduceSlice<Sum, kRanks>(group, arguments.parts[i], group.arena[group.rank] + offset);
    offset += Slices(arguments.parts[i], group.ranks).slice;
  }
  met = meeting.MeetReduced() && met;
  offset = group.reduced_offset;
  for (int i = 0; i < arguments.part_count; ++i) {
    if (met) {
      CollectSlices<kRanks>(group, arguments.parts[i], offset);
    } else {
      PoisonPart(arguments.parts[i].sum, arguments.parts[i].bytes);
    }
    offset += Slices(arguments.parts[i], group.ranks).slice;
  }
  meeting.Finish();
}

template <class Run>
auto WithKernel(DType dtype, int32_t ranks, const Run& run) {
  if (dtype == DType::kF32) {
    return ranks <= 4 ? run(TwoShotKernel<FloatSum, 4>) : run(TwoShotKernel<FloatSum, kMaxPeers>);
  }
  return ranks <= 4 ? run(TwoShotKernel<BFloat16Sum, 4>)
                    : run(TwoShotKernel<BFloat16Sum, kMaxPeers>);
}

}  // namespace

cudaError_t TwoShotRoom(int32_t threads, int32_t* ctas) {
  // The instantiations for more ranks need more registers.
  return SmallestRoom(ctas, [&](DType dtype, int32_t, int32_t* room) {
    return WithKernel(dtype, kMaxPeers, [&](auto kernel) { return RoomOf(kernel, threads, room); });
  });
}

}  // namespace segue::kernels::cuda

namespace segue::kernels {

Status TwoShotAllReduce(const AllReduceParams& params, const Context& context) {
  cuda::TwoShotArguments arguments = {.group = params.group, .part_count = params.part_count};
  for (int i = 0; i < params.part_count; ++i) {
    arguments.parts[i] = params.parts[i];
    arguments.bytes += static_cast<uint64_t>(params.parts[i].bytes);
  }
  const cuda::Grid grid = cuda::GridOf(params, context);
  return cuda::WithKernel(params.dtype, params.group.ranks, [&](auto kernel) {
    return cuda::Enqueue("all_reduce", kernel, grid, arguments);
  });
}

}  // namespace segue::kernels
