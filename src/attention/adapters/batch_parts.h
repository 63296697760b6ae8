// What the adapters of attention_adapters.h share: checks of whole tensors, and the steps from
// lists of segments to a Batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/plan_check.h"
#include "segue/attention_adapters.h"

namespace segue::attention {

// Each sequence's segments, before all get as many as the longest has.
using SegmentLists = std::vector<std::vector<SegmentRows>>;

// Errors: more than 2^31 - 1 query rows in all; a table that no memory would hold.
Result<Batch> MakeBatch(const char* operation, std::vector<TensorSet> tensors,
                        const SegmentLists& sequences);

// Rows [begin, begin + rows) of the set `source` as queries and as keys.
inline SegmentRows BothRows(int32_t source, int64_t begin, int64_t rows) {
  const auto first = static_cast<int32_t>(begin);
  const auto count = static_cast<int32_t>(rows);
  return {.source = source, .q_begin = first, .q_rows = count, .kv_begin = first, .kv_rows = count};
}

// The same rows as queries that see no key: their outputs become zeros.
inline SegmentRows QueriesOnly(int32_t source, int64_t begin, int64_t rows) {
  return {.source = source,
          .q_begin = static_cast<int32_t>(begin),
          .q_rows = static_cast<int32_t>(rows),
          .kv_begin = 0,
          .kv_rows = 0};
}

// Error unless value >= 0.
Status CheckCount(const char* operation, const std::string& name, int64_t value);

// One tensor set of [rows, heads, head_dim] tensors named q, k, v and o.
Status CheckTensorSet(const char* operation, const TensorSet& set, const Options& options);

// cu_seqlens: 0, ..., total, never falling. `total_name` is how an error calls the total.
Status CheckBounds(const char* operation, const std::string& name, std::span<const int32_t> bounds,
                   int64_t total, const std::string& total_name);

// A Dense as tensor sets: one when rows of all sequences can be numbered through, else one each.
class DenseSets {
 public:
  // `name` goes before an error's argument: "" or "prefix.". The sets will stand from
  // `first_source` on.
  static Result<DenseSets> Make(const char* operation, const std::string& name, const Dense& dense,
                                const Options& options, int32_t first_source);

  const std::vector<TensorSet>& tensors() const { return tensors_; }
  // Rows [begin, begin + rows) of a sequence, as queries and as keys (or as queries alone).
  SegmentRows Both(int64_t sequence, int64_t begin, int64_t rows) const;
  SegmentRows Queries(int64_t sequence, int64_t begin, int64_t rows) const;
  // All rows of a sequence.
  SegmentRows All(int64_t sequence) const;

 private:
  int32_t Source(int64_t sequence) const;
  int64_t QBegin(int64_t sequence) const { return shared_ ? sequence * q_step_ : 0; }
  int64_t KvBegin(int64_t sequence) const { return shared_ ? sequence * kv_step_ : 0; }

  Dense dense_;
  std::vector<TensorSet> tensors_;
  int32_t first_source_ = 0;
  bool shared_ = false;
  int64_t q_step_ = 0;  // rows from a sequence to the next, where they share a set
  int64_t kv_step_ = 0;
};

}  // namespace segue::attention
