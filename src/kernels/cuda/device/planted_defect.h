// Mistakes on purpose. A build with SEGUE_PLANTED_DEFECTS holds one of each kind that
// compute-sanitizer's tools look for, chosen at run time: a tool that passes over its own kind says
// nothing by reporting no other (tools/sanitize). Every other build holds none, at no cost.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

enum class Defect : int32_t {
  kNone,
  kOutOfBounds,   // memcheck: a store past the end of a tensor
  kRace,          // racecheck: shared memory written without waiting for its readers
  kUnwritten,     // initcheck: a read of global memory that nobody wrote
  kWarpBarrier,   // synccheck: a lane at a barrier that its mask leaves out
  kBlockBarrier,  // synccheck: half of a warp at a barrier of the block
};

#ifdef SEGUE_PLANTED_DEFECTS
inline constexpr bool kPlantsDefects = true;
static __constant__ Defect planted_defect;

__device__ __forceinline__ bool Planted(Defect defect) { return planted_defect == defect; }
// Half of the warp meets, with one lane more that the mask leaves out. The branch and a mask that
// is known at run time only keep the instruction from being left out too.
__device__ __forceinline__ void MisuseWarpBarrier() {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t mask = __ballot_sync(0xffffffffu, lane < 16);
  if (lane <= 16) __syncwarp(mask);
}
// Once every other thread is about to exit: a barrier does not wait for those that did.
__device__ __forceinline__ void MisuseBlockBarrier() {
  if (threadIdx.x % 32 < 16) __syncthreads();
}
#else
inline constexpr bool kPlantsDefects = false;
__device__ __forceinline__ constexpr bool Planted(Defect) { return false; }
__device__ __forceinline__ void MisuseWarpBarrier() {}
__device__ __forceinline__ void MisuseBlockBarrier() {}
#endif

}  // namespace segue::kernels::device
