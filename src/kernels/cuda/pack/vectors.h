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

// Wide rows: a warp moves a piece of a row, 3 KiB at most, with up to 6 loads a lane in flight. 40
// warps an SM (51 registers a thread) then have 120 KiB under way, and 60 KiB for the narrowest
// rows that count as wide; narrower ones would leave lanes idle.
inline constexpr int32_t kWarp = 32;
inline constexpr int32_t kPieceVectorsPerLane = 6;
inline constexpr int32_t kMaxPieceVectors = kWarp * kPieceVectorsPerLane;
inline constexpr int32_t kPiecesPerCta = kMoveThreads / kWarp;
inline constexpr int32_t kMinWideVectors = 3 * kWarp;
inline constexpr int32_t kWideCtasPerSm = 5;

}  // namespace segue::kernels::cuda
