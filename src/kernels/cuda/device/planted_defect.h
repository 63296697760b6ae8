// Mistakes on purpose. A build with SEGUE_PLANTED_DEFECTS holds one of each kind that
// compute-sanitizer's tools look for, chosen at run time: a tool that passes over its own kind says
// nothing by reporting no other (tools/sanitize). Every other build holds none, at no cost.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace segue::kernels::device {

enum class Defect : int32_t {
  kNone,
  kOutOfBounds,  // memcheck: a store past the end of a tensor
  kRace,         // racecheck: shared memory written without waiting for its readers
  kUnwritten,    // initcheck: a read of global memory that nobody wrote
  kWarpBarrier,  // synccheck: a lane at a barrier that its mask leaves out
};

#ifdef SEGUE_PLANTED_DEFECTS
inline constexpr bool kPlantsDefects = true;
static __constant__ Defect planted_defect;

__device__ __forceinline__ bool Planted(Defect defect) { return planted_defect == defect; }
// The last lane stands outside its own mask.
__device__ __forceinline__ void MisuseWarpBarrier() {
  __syncwarp(0xffffffffu >> (Planted(Defect::kWarpBarrier) ? 1 : 0));
}
#else
inline constexpr bool kPlantsDefects = false;
__device__ __forceinline__ constexpr bool Planted(Defect) { return false; }
__device__ __forceinline__ void MisuseWarpBarrier() {}
#endif

}  // namespace segue::kernels::device
