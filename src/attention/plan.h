// How attention is cut into tiles: pure arithmetic on lengths, for any device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/span.h"
#include "segue/attention.h"

namespace segue::attention {

// The query rows that one worker takes at once, for one head of one sequence. It visits all keys
// of the sequence itself: keys are never split between workers, so nothing is combined afterwards.
struct Tile {
  int32_t sequence = 0;
  int32_t head = 0;         // query head
  int64_t query_begin = 0;  // counted through the sequence's segments
  int64_t query_rows = 0;

  bool operator==(const Tile&) const = default;
};

// Rows of a sequence, summed over its segments.
struct SequenceRows {
  int64_t query = 0;
  int64_t key = 0;
};

struct TilePlan {
  std::vector<SequenceRows> rows;     // [sequences]
  std::vector<int64_t> query_offset;  // [sequences]: query rows of all earlier sequences
  int64_t total_query_rows = 0;
  // In the order in which they are taken: the longest sequences first, so that the last workers
  // finish together; then heads, then query blocks, so that neighbours share keys in the cache.
  std::vector<Tile> tiles;

  // "2 sequences, 48 tiles of at most 192 query rows"
  std::string ToString() const;
};

// Depends on the lengths and heads only, not on the threads that will run it.
// Preconditions: the segments were checked; query_block > 0.
TilePlan MakeTilePlan(const Options& options, Span<const Sequence> sequences, int64_t query_block);

}  // namespace segue::attention
