#include "runtime/row_cache.h"

#include <algorithm>
#include <set>

namespace segue::runtime {

RowCache::RowCache(int64_t rows) : rows_(rows) {
  for (int64_t row = rows; row-- > 0;) free_.push_back(static_cast<int32_t>(row));
}

int32_t RowCache::TakeRow() {
  if (!free_.empty()) {
    const int32_t row = free_.back();
    free_.pop_back();
    return row;
  }
  const Entry oldest = entries_.front();  // not of this call: Find counted
  by_key_.erase(oldest.key);
  entries_.pop_front();
  return oldest.row;
}

std::optional<RowCache::Lookup> RowCache::Find(Span<const uint32_t> keys) {
  const std::set<uint32_t> distinct(keys.begin(), keys.end());
  if (static_cast<int64_t>(distinct.size()) > rows_) return std::nullopt;
  // Those that are there move behind all others first, so that no miss takes one of their rows.
  for (const uint32_t key : distinct) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) continue;
    ++hits_;
    entries_.splice(entries_.end(), entries_, found->second);
  }
  Lookup lookup;
  for (const uint32_t key : distinct) {
    if (by_key_.contains(key)) continue;
    ++misses_;
    const int32_t row = TakeRow();
    entries_.push_back({.key = key, .row = row});
    by_key_[key] = std::prev(entries_.end());
    lookup.misses.push_back({.key = key, .row = row});
  }
  std::sort(lookup.misses.begin(), lookup.misses.end(),
            [](const Lookup::Miss& a, const Lookup::Miss& b) { return a.row < b.row; });
  for (const uint32_t key : keys) lookup.rows.push_back(by_key_.at(key)->row);
  return lookup;
}

void RowCache::Forget(Span<const Lookup::Miss> misses) {
  for (const Lookup::Miss& miss : misses) {
    const auto found = by_key_.find(miss.key);
    if (found == by_key_.end() || found->second->row != miss.row) continue;
    entries_.erase(found->second);
    by_key_.erase(found);
    free_.push_back(miss.row);
  }
}

}  // namespace segue::runtime
