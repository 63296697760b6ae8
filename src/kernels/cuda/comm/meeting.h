// How the CTAs of a call meet their counterparts on the other ranks.
//
// CTA c of every rank meets CTA c of the others: no CTA waits for one of its own grid. A flag is
// the number of the call and only grows, so that nothing is ever reset and a rank that runs ahead
// overwrites nothing that is still waited for. A rank's arrival at call k + 1 proves that all of
// its call k is over: kernels of a stream follow each other.
#pragma once

#include <cuda_runtime.h>

#include "kernels/all_reduce.h"
#include "kernels/cuda/device/system_memory.h"

namespace segue::kernels::cuda {

// Looks at a flag between two looks at the clock.
inline constexpr int kLooks = 64;

__device__ __forceinline__ PeerControl& ControlOf(const PeerGroup& group, int rank) {
  return *reinterpret_cast<PeerControl*>(group.arena[rank]);
}

struct FailedCall {
  int blamed;  // the rank that does not come or that failed
  bool told;   // by a peer or by the host
  uint32_t call;
  uint64_t bytes;
};

// Says so to this rank's other CTAs and later calls, to the peers, and to the host.
static __device__ __noinline__ void GiveUp(const PeerGroup& group, const FailedCall& failed) {
  const auto word = static_cast<uint32_t>(failed.blamed + 1);
  for (int peer = 0; peer < group.ranks; ++peer) {
    device::SetIfZero(&ControlOf(group, peer).failed, word);
  }
  if (device::SetIfZero(&ControlOf(group, group.rank).recorded, 1) != 0) return;
  PeerFailure& failure = *group.failure;
  failure.call = failed.call;
  failure.blamed = static_cast<uint32_t>(failed.blamed);
  failure.told = failed.told ? 1 : 0;
  failure.bytes = failed.bytes;
  device::StoreRelease(&failure.state, 1);
}

// Called by all threads of a CTA; every CTA of a call constructs one and calls Meet as often as
// every other.
class Meeting {
 public:
  __device__ __forceinline__ Meeting(const PeerGroup& group, uint64_t bytes)
      : group_(group),
        bytes_(bytes),
        call_(device::LoadRelaxed(&ControlOf(group, group.rank).calls[blockIdx.x]) + 1) {}

  // The partial sums of all ranks are there, which earlier kernels of their streams wrote. False:
  // a rank has failed or does not come; then so says every later call of the group.
  __device__ __forceinline__ bool MeetArrived() { return Meet(&PeerControl::arrived); }
  // What the CTAs of this number wrote before they came here is there.
  __device__ __forceinline__ bool MeetReduced() {
    __syncthreads();  // the thread that says so speaks for the CTA
    return Meet(&PeerControl::reduced);
  }

  // Counts the call, behind its first meeting. CTA 0 counts for those that only larger calls have,
  // so that every CTA's count is the number of calls.
  __device__ __forceinline__ void Finish() {
    PeerControl& own = ControlOf(group_, group_.rank);
    if (threadIdx.x == 0) own.calls[blockIdx.x] = call_;
    if (blockIdx.x != 0) return;
    for (uint32_t cta = gridDim.x + threadIdx.x; cta < kMaxReduceCtas; cta += blockDim.x) {
      own.calls[cta] = call_;
    }
  }

 private:
  using Flags = uint32_t (PeerControl::*)[kMaxPeers][kMaxReduceCtas];

  __device__ __forceinline__ bool Meet(Flags flags) const {
    const int peer = static_cast<int>(threadIdx.x);
    const bool meets = peer < group_.ranks && peer != group_.rank;
    if (meets) {
      device::StoreRelease(&(ControlOf(group_, peer).*flags)[group_.rank][blockIdx.x], call_);
    }
    // Everybody is told before anybody is waited for: who does not come is the one to blame.
    __syncwarp();
    bool failed = false;
    if (meets) {
      failed = !WaitFor(&(ControlOf(group_, group_.rank).*flags)[peer][blockIdx.x], peer);
    }
    // Also hands what was acquired to the rest of the CTA.
    return __syncthreads_or(failed ? 1 : 0) == 0;
  }

  __device__ __forceinline__ bool WaitFor(const uint32_t* flag, int peer) const {
    const uint32_t* failed = &ControlOf(group_, group_.rank).failed;
    uint64_t deadline = 0;  // none yet: the first looks need no clock
    for (int looks = 1;; ++looks) {
      const uint32_t blamed = device::LoadRelaxed(failed);
      const uint32_t there = device::LoadAcquire(flag);
      if (blamed != 0) return Fail(static_cast<int>(blamed) - 1, true);
      if (static_cast<int32_t>(there - call_) >= 0) return true;
      if (looks % kLooks != 0) continue;
      const uint64_t now = device::GlobalTimer();
      if (deadline == 0) deadline = now + group_.time_limit_ns;
      if (now >= deadline) return Fail(peer, false);
    }
  }

  __device__ __forceinline__ bool Fail(int blamed, bool told) const {
    GiveUp(group_, {blamed, told, call_, bytes_});
    return false;
  }

  const PeerGroup& group_;
  uint64_t bytes_;
  uint32_t call_;
};

// What a failed call leaves in memory: NaNs of either type.
inline constexpr uint32_t kPoison = 0xffffffffu;
__device__ __forceinline__ uint4 Poison() { return {kPoison, kPoison, kPoison, kPoison}; }

}  // namespace segue::kernels::cuda
