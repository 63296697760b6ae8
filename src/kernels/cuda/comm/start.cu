// What a group does once, when it starts: how many CTAs fit, loading every kernel, and the probe.
#include <cuda_runtime.h>

#include "kernels/cuda/comm/launch.h"
#include "kernels/cuda/comm/meeting.h"
#include "kernels/cuda/comm/reduce.h"

namespace segue::kernels {
namespace cuda {
namespace {

// One thread a peer.
__global__ void WriteProbesKernel(const __grid_constant__ PeerGroup group, uint32_t value) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= group.ranks || peer == group.rank) return;
  device::StoreRelease(&ControlOf(group, peer).probe[group.rank],
                       value + static_cast<uint32_t>(group.rank));
}

__global__ void ReadProbesKernel(const __grid_constant__ PeerGroup group) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= group.ranks || peer == group.rank) return;
  ControlOf(group, group.rank).probe_read[peer] =
      device::LoadAcquire(&ControlOf(group, peer).probe[group.rank]);
}

Status CheckRoom(cudaError_t status) {
  if (status == cudaSuccess) return {};
  (void)cudaGetLastError();
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "start a group",
               .argument = "kernels",
               .got = cudaGetErrorString(status),
               .wanted = "a working CUDA device"};
}

}  // namespace
}  // namespace cuda

Result<ReduceRoom> MaxReduceCtas(int32_t threads) {
  ReduceRoom room;
  SEGUE_RETURN_IF_ERROR(cuda::CheckRoom(cuda::OneShotRoom(threads, &room.one_shot)));
  SEGUE_RETURN_IF_ERROR(cuda::CheckRoom(cuda::TwoShotRoom(threads, &room.two_shot)));
  for (int32_t warp = 0; warp < ReduceRoom::kWarps; ++warp) {
    SEGUE_RETURN_IF_ERROR(
        cuda::CheckRoom(cuda::SumNormRoom(32 * (warp + 1), &room.sum_norm[warp])));
  }
  return room;
}

Status WarmReduce(const Stream& stream) {
  const Context context = {.stream = stream};
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int32_t unroll : {1, 2, 4}) {
      const AllReduceParams params = {.dtype = dtype, .tuning = {.unroll = unroll}};
      SEGUE_RETURN_IF_ERROR(OneShotAllReduce(params, context));
      SEGUE_RETURN_IF_ERROR(TwoShotAllReduce(params, context));
    }
  }
  for (const Rounding rounding : {Rounding::kNone, Rounding::kBF16}) {
    const SumNormParams params = {.norm = {.rounding = rounding}};
    SEGUE_RETURN_IF_ERROR(SumModulatedNorm(params, context));
  }
  return {};
}

Status WriteProbes(const PeerGroup& group, uint32_t value, const Stream& stream) {
  return cuda::Enqueue("probe peers", cuda::WriteProbesKernel, {1, 32, stream}, group, value);
}

Status ReadProbes(const PeerGroup& group, const Stream& stream) {
  return cuda::Enqueue("probe peers", cuda::ReadProbesKernel, {1, 32, stream}, group);
}

}  // namespace segue::kernels
