// Moving vectors of 2 to 16 bytes, several in flight a thread.
//
// A chip at 4.2 TB/s moves one warp's 512 bytes per SM in some 55 clocks, so instructions are
// plentiful and requests in flight are what counts: about 16 KiB of loads an SM cover the latency
// of memory (2.1 TB/s read x 1 us / 132), and 4 CTAs of 256 threads with 4 vectors each keep 64
// KiB.
#pragma once

#include <cstdint>

namespace segue::kernels::cuda {

inline constexpr int32_t kMoveThreads = 256;
inline constexpr int32_t kVectorsPerThread = 4;
inline constexpr int32_t kVectorsPerCta = kMoveThreads * kVectorsPerThread;
inline constexpr int32_t kCtasPerSm = 4;

}  // namespace segue::kernels::cuda
