// What the CPU back end's files share.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "attention/plan.h"

namespace segue::attention {

// Query rows of a tile. Keys and values are packed once a tile, which costs about 4 % of its
// arithmetic at 192 rows. 4 panels of 48 rows (AVX-512) or 8 of 24 (AVX2).
inline constexpr int64_t kQueryBlock = 192;
// Keys that are scored before the softmax is brought up to date: 128 keys x 48 queries of scores
// are 24 KiB and stay in the level-1 cache. A constant: the order of a row's sums depends on it.
inline constexpr int64_t kKeyTile = 128;
// Bounds a worker's scratch; the largest head in use is the VAE's, 384.
inline constexpr int32_t kMostHeadDim = 1024;

// One tensor of a segment, to be gathered over the segments of a sequence.
struct SegmentField {
  RowsView Segment::* view;
  int64_t Segment::* count;
  int64_t head;
  int64_t head_dim;
};

// Pointers to rows [begin, begin + count) of a sequence, counted through its segments.
void GatherRows(const Sequence& sequence, const SegmentField& which, int64_t begin, int64_t count,
                float** rows);

// Attends all rows of one tile; `scratch` is the worker's (ThreadPool::Scratch).
using TileCode = void (*)(const Params& params, const TilePlan& plan, const Tile& tile,
                          void* scratch);

extern const TileCode kAttendTileAvx2;
extern const TileCode kAttendTileAvx512;

}  // namespace segue::attention
