// How the sm90 attention kernel cuts a batch into tiles, and the table in device memory that says
// so.
//
// The caller's lengths (SegmentRows) become one schedule: a header, a record per sequence and
// segment, and the list of work. It lies in one block of memory whose layout follows from a
// capacity that the caller fixes once, so lengths and batch size may change under a captured graph.
// Everything here is arithmetic that host and device share: BuildSchedule (host) and the refresh
// kernel (device) write the same bytes. Only <cstdint> and plain structs are used, so that
// nvcc sees what g++ sees.
#pragma once

#include <cstdint>

#include "segue/segment_rows.h"

#if defined(__CUDACC__)
#define SEGUE_HOST_DEVICE __host__ __device__
#else
#define SEGUE_HOST_DEVICE
#endif

namespace segue::kernels {

// Query rows of a CTA: two consumer warpgroups of 64, the rows of one wgmma.
inline constexpr int32_t kQueryTile = 128;
inline constexpr int32_t kHalfQueryTile = 64;
// Key rows of a tile. 176: scores, packed weights and outputs of a thread take 88 + 44 + 64 of its
// 240 registers. Causal tiles are narrower because a diagonal tile is half wasted.
inline constexpr int32_t kKeyTile = 176;
inline constexpr int32_t kCausalKeyTile = 128;
// Every segment begins at a multiple of this in its sequence's key axis: one swizzle atom.
inline constexpr int32_t kKeyGroup = 8;
inline constexpr int32_t kMaxSources = 8;
inline constexpr int32_t kMaxSegments = 32;     // of a sequence: one lane of the producer each
inline constexpr int32_t kMaxSequences = 2048;  // the refresh kernel sorts them in shared memory

// A source is a set of tensors (Q, K, V, O) with their strides.
using attention::SegmentRows;

// Rows that exist in a source's tensors.
struct SourceRows {
  int32_t q;
  int32_t kv;
};

struct ScheduleCapacity {
  int32_t sequences;
  int32_t segments;  // per sequence: the stride of the segment tables
  int32_t work;      // entries; MaxWork() bounds what lengths can need
};

// All that tiles and order depend on besides the lengths.
struct ScheduleShape {
  ScheduleCapacity capacity;
  int32_t q_heads;
  int32_t causal;   // 0 or 1
  int32_t ctas;     // that the kernel will run with
  int32_t sources;  // used entries of source_rows
  SourceRows source_rows[kMaxSources];
  int64_t lse_rows;  // row capacity of the log-sum-exp output; INT32_MAX when there is none
};

enum ScheduleError : int32_t {
  kScheduleOk = 0,
  kScheduleSequences,  // the count is negative or beyond the capacity
  kScheduleSource,     // a segment names no source
  kScheduleRows,       // negative rows, rows beyond their source, or too many in a sequence
  kScheduleWork,       // more work than the capacity
  kScheduleLse,        // more query rows than the log-sum-exp output holds
};

// A schedule with an error has no work: the kernel then writes nothing.
struct ScheduleHeader {
  int32_t work;     // entries in use; every entry past them has sequence = -1
  int32_t dynamic;  // 1: entries are taken from a counter, 0: in steps of the grid
  int32_t error;    // ScheduleError
  int32_t error_sequence;
};

struct SequenceRecord {
  int32_t q_rows;
  int32_t kv_rows;
  int32_t key_extent;  // length of the key axis, gaps between segments included
  int32_t lse_begin;   // query rows of earlier sequences
};

struct SegmentRecord {
  int32_t source;
  int32_t q_begin;
  int32_t q_rows;
  int32_t q_position;  // query rows of earlier segments of the sequence
  int32_t kv_begin;
  int32_t kv_rows;
  int32_t kv_position;  // key rows of earlier segments
  int32_t key_begin;    // where the segment begins on the key axis
};

// One head of at most kQueryTile query rows of one segment. Rows never cross a segment.
struct WorkItem {
  int32_t sequence;  // -1: none
  int32_t segment;
  int32_t row;            // first row within the segment
  int32_t head_and_rows;  // head x 256 + rows; 0 rows: nothing to do
};

SEGUE_HOST_DEVICE constexpr int32_t DivideUp(int32_t x, int32_t y) { return (x + y - 1) / y; }
SEGUE_HOST_DEVICE constexpr int32_t KeyTileOf(int32_t causal) {
  return causal != 0 ? kCausalKeyTile : kKeyTile;
}

// Byte offsets of the parts of a schedule; each is a multiple of 16.
SEGUE_HOST_DEVICE constexpr int64_t SequencesOffset() { return sizeof(ScheduleHeader); }
SEGUE_HOST_DEVICE constexpr int64_t SegmentsOffset(const ScheduleCapacity& c) {
  return SequencesOffset() + int64_t{c.sequences} * int64_t{sizeof(SequenceRecord)};
}
SEGUE_HOST_DEVICE constexpr int64_t WorkOffset(const ScheduleCapacity& c) {
  return SegmentsOffset(c) + int64_t{c.sequences} * c.segments * int64_t{sizeof(SegmentRecord)};
}
SEGUE_HOST_DEVICE constexpr int64_t ScheduleBytes(const ScheduleCapacity& c) {
  return WorkOffset(c) + int64_t{c.work} * int64_t{sizeof(WorkItem)};
}

// Entries enough for any lengths whose query rows sum to at most `q_rows` over at most `segments`
// segments with query rows: a segment wastes at most one tile, a split last wave adds one a CTA.
SEGUE_HOST_DEVICE constexpr int64_t MaxWork(int64_t q_rows, int64_t segments, int32_t q_heads,
                                            int32_t ctas) {
  return (q_rows / kQueryTile + segments) * q_heads + ctas;
}

SEGUE_HOST_DEVICE constexpr ScheduleError CheckSegment(const SegmentRows& s,
                                                       const ScheduleShape& shape) {
  if (s.q_rows == 0 && s.kv_rows == 0) return kScheduleOk;
  if (s.source < 0 || s.source >= shape.sources) return kScheduleSource;
  const SourceRows& rows = shape.source_rows[s.source];
  const bool q_fits = s.q_rows >= 0 && s.q_begin >= 0 && s.q_begin <= rows.q - s.q_rows;
  const bool kv_fits = s.kv_rows >= 0 && s.kv_begin >= 0 && s.kv_begin <= rows.kv - s.kv_rows;
  return q_fits && kv_fits ? kScheduleOk : kScheduleRows;
}

// Whether segment a's keys lie before segment b's on the key axis: in order when causal, else the
// longest first, so that the tile where segments meet is often the last one, which is partly empty
// anyway.
SEGUE_HOST_DEVICE constexpr bool KeysPrecede(const SegmentRows* rows, int32_t causal, int32_t a,
                                             int32_t b) {
  if (causal != 0 || rows[a].kv_rows == rows[b].kv_rows) return a < b;
  return rows[a].kv_rows > rows[b].kv_rows;
}

// The record of segment `index` of the `segments` that start at `rows`.
SEGUE_HOST_DEVICE constexpr SegmentRecord MakeSegment(const SegmentRows* rows, int32_t segments,
                                                      int32_t causal, int32_t index) {
  SegmentRecord record{rows[index].source,
                       rows[index].q_begin,
                       rows[index].q_rows,
                       0,
                       rows[index].kv_begin,
                       rows[index].kv_rows,
                       0,
                       0};
  for (int32_t s = 0; s < segments; ++s) {
    if (s < index) {
      record.q_position += rows[s].q_rows;
      record.kv_position += rows[s].kv_rows;
    }
    if (s != index && KeysPrecede(rows, causal, s, index)) {
      record.key_begin += DivideUp(rows[s].kv_rows, kKeyGroup) * kKeyGroup;
    }
  }
  return record;
}

// Sums over a sequence in 64 bits, so that a check comes before any narrowing.
struct SequenceSums {
  int64_t q_rows = 0;
  int64_t kv_rows = 0;
  int64_t key_extent = 0;
  int64_t query_tiles = 0;
  int32_t error = kScheduleOk;
};
SEGUE_HOST_DEVICE constexpr SequenceSums SumSequence(const SegmentRows* rows,
                                                     const ScheduleShape& shape) {
  SequenceSums sums;
  int32_t last = -1;  // on the key axis
  for (int32_t s = 0; s < shape.capacity.segments; ++s) {
    const ScheduleError error = CheckSegment(rows[s], shape);
    if (error != kScheduleOk) {
      sums.error = error;
      return sums;
    }
    sums.q_rows += rows[s].q_rows;
    sums.key_extent += int64_t{DivideUp(rows[s].kv_rows, kKeyGroup)} * kKeyGroup;
    if (rows[s].kv_rows > 0 && (last < 0 || KeysPrecede(rows, shape.causal, last, s))) last = s;
    sums.kv_rows += rows[s].kv_rows;
    sums.query_tiles += DivideUp(rows[s].q_rows, kQueryTile);
  }
  // It needs no padding after it.
  if (last >= 0) {
    sums.key_extent -= DivideUp(rows[last].kv_rows, kKeyGroup) * kKeyGroup - rows[last].kv_rows;
  }
  constexpr int64_t kMaxRows = 1 << 30;
  if (sums.q_rows > kMaxRows || sums.key_extent > kMaxRows) sums.error = kScheduleRows;
  return sums;
}

// Key tiles that a query tile of the sequence visits (the last one does, when causal).
SEGUE_HOST_DEVICE constexpr int32_t SequenceCost(const SequenceSums& sums, int32_t causal) {
  return DivideUp(static_cast<int32_t>(sums.key_extent), KeyTileOf(causal));
}

// Whether a sequence counts when sequences are compared for equal lengths: one without query rows
// has no work, and one without keys costs no more than writing zeros.
SEGUE_HOST_DEVICE constexpr bool Weighs(int32_t cost, int64_t query_tiles) {
  return cost > 0 && query_tiles > 0;
}

// The order of sequences: the longest first, so that the last CTAs finish together.
SEGUE_HOST_DEVICE constexpr bool Precedes(int32_t cost_a, int32_t a, int32_t cost_b, int32_t b) {
  return cost_a > cost_b || (cost_a == cost_b && a < b);
}

// Entry `index` of a sequence's own work: heads outside query tiles, so that CTAs at work share
// keys; when causal, the longest tiles of all heads first.
SEGUE_HOST_DEVICE constexpr WorkItem SequenceWork(int32_t sequence, const SegmentRows* rows,
                                                  const ScheduleShape& shape, int32_t tiles,
                                                  int32_t index) {
  int32_t head = index / tiles;
  int32_t tile = index % tiles;
  if (shape.causal != 0) {
    head = index % shape.q_heads;
    tile = tiles - 1 - index / shape.q_heads;
  }
  int32_t segment = 0;
  while (tile >= DivideUp(rows[segment].q_rows, kQueryTile)) {
    tile -= DivideUp(rows[segment].q_rows, kQueryTile);
    ++segment;
  }
  const int32_t row = tile * kQueryTile;
  const int32_t left = rows[segment].q_rows - row;
  const int32_t count = left < kQueryTile ? left : kQueryTile;
  return {sequence, segment, row, head * 256 + count};
}

// Tiles at the end of a static order that are cut in two: a last wave that would leave half of the
// CTAs idle is done by twice as many in little more than half the time.
SEGUE_HOST_DEVICE constexpr int32_t SplitTiles(int64_t tiles, int32_t ctas, int32_t dynamic) {
  const int32_t last_wave = static_cast<int32_t>(tiles % ctas);
  return dynamic == 0 && tiles > ctas && 2 * last_wave <= ctas ? last_wave : 0;
}

// Which tile of the unsplit list entry `index` belongs to, and which half of it.
struct SplitEntry {
  int32_t tile;
  int32_t half;  // -1: all of it
};
SEGUE_HOST_DEVICE constexpr SplitEntry FindSplit(int32_t index, int32_t tiles, int32_t split) {
  const int32_t whole = tiles - split;
  if (index < whole) return {index, -1};
  return {whole + (index - whole) / 2, (index - whole) % 2};
}
SEGUE_HOST_DEVICE constexpr WorkItem HalfOf(WorkItem item, int32_t half) {
  const int32_t rows = item.head_and_rows % 256;
  const int32_t head = item.head_and_rows / 256;
  const int32_t first = rows < kHalfQueryTile ? rows : kHalfQueryTile;
  if (half == 0) return {item.sequence, item.segment, item.row, head * 256 + first};
  if (half == 1) {
    return {item.sequence, item.segment, item.row + kHalfQueryTile, head * 256 + rows - first};
  }
  return item;
}

// Causal: how far along the key axis a query row sees that sees the first `count` key rows.
SEGUE_HOST_DEVICE constexpr int32_t KeyLimit(const SegmentRecord& segment, int32_t count,
                                             int32_t limit) {
  const bool inside = segment.kv_rows > 0 && count > segment.kv_position;
  return inside ? segment.key_begin + count - segment.kv_position : limit;
}

// Writes the schedule of `sequences` sequences to `schedule`, ScheduleBytes(shape.capacity) bytes
// aligned to 16. `rows` holds capacity.segments entries a sequence. Mistakes in the lengths are
// reported in the header, as the device would.
// Precondition: 0 < capacity.sequences <= kMaxSequences, 0 < capacity.segments <= kMaxSegments,
// capacity.work >= 0, ctas > 0, q_heads > 0.
void BuildSchedule(const ScheduleShape& shape, const SegmentRows* rows, int32_t sequences,
                   void* schedule);

}  // namespace segue::kernels
