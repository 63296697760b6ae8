// Which row of a table holds which key, with the row used longest ago given up first.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/span.h"

namespace segue::runtime {

// Keys are the bits of a float32. Not thread-safe.
class RowCache {
 public:
  explicit RowCache(int64_t rows);

  struct Lookup {
    std::vector<int32_t> rows;  // of every key asked for, in order
    // Keys that had no row, each once, with the row each was given, in ascending order of rows.
    struct Miss {
      uint32_t key = 0;
      int32_t row = 0;
    };
    std::vector<Miss> misses;
  };
  // Rows of all keys, which hold together: none is given up for another of the same call. Absent
  // when the keys, repetitions aside, are more than the rows.
  std::optional<Lookup> Find(Span<const uint32_t> keys);

  bool Contains(uint32_t key) const { return by_key_.contains(key); }

  // Forgets keys whose rows were not written after all.
  void Forget(Span<const Lookup::Miss> misses);

  int64_t rows() const { return rows_; }
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  struct Entry {
    uint32_t key = 0;
    int32_t row = 0;
  };
  int32_t TakeRow();

  int64_t rows_;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
  std::vector<int32_t> free_;  // rows never used or forgotten, the lowest last
  std::list<Entry> entries_;   // the one used longest ago first
  std::unordered_map<uint32_t, std::list<Entry>::iterator> by_key_;
};

}  // namespace segue::runtime
