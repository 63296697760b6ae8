#include "attention/plan.h"

#include <algorithm>
#include <numeric>

namespace segue::attention {

std::string TilePlan::ToString() const {
  int64_t largest = 0;
  for (const Tile& tile : tiles) largest = std::max(largest, tile.query_rows);
  return std::to_string(rows.size()) + " sequences, " + std::to_string(tiles.size()) +
         " tiles of at most " + std::to_string(largest) + " query rows";
}

TilePlan MakeTilePlan(const Options& options, Span<const Sequence> sequences, int64_t query_block) {
  TilePlan plan;
  plan.rows.reserve(sequences.size());
  plan.query_offset.reserve(sequences.size());
  int64_t tiles = 0;
  for (const Sequence& sequence : sequences) {
    SequenceRows rows;
    for (const Segment& segment : sequence.segments) {
      rows.query += segment.q_rows;
      rows.key += segment.kv_rows;
    }
    plan.rows.push_back(rows);
    plan.query_offset.push_back(plan.total_query_rows);
    plan.total_query_rows += rows.query;
    tiles += (rows.query + query_block - 1) / query_block * options.q_heads;
  }

  std::vector<int32_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&plan](int32_t a, int32_t b) {
    const int64_t a_keys = plan.rows[a].key;
    const int64_t b_keys = plan.rows[b].key;
    return a_keys != b_keys ? a_keys > b_keys : a < b;
  });
  plan.tiles.reserve(tiles);
  for (const int32_t sequence : order) {
    const int64_t rows = plan.rows[sequence].query;
    for (int32_t head = 0; head < options.q_heads; ++head) {
      for (int64_t begin = 0; begin < rows; begin += query_block) {
        plan.tiles.push_back({.sequence = sequence,
                              .head = head,
                              .query_begin = begin,
                              .query_rows = std::min(query_block, rows - begin)});
      }
    }
  }
  return plan;
}

}  // namespace segue::attention
