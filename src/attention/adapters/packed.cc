// Adapters of tensors whose rows are those of all sequences, one after the other.
#include <algorithm>
#include <utility>

#include "attention/adapters/batch_parts.h"

namespace segue::attention {
namespace {

constexpr char kPacked[] = "attention from packed tensors";
constexpr char kTrailing[] = "attention from rows with trailing padding";
constexpr char kIndices[] = "attention from row indices";

Status CheckLongest(const std::string& name, int32_t given, std::span<const int32_t> bounds) {
  SEGUE_RETURN_IF_ERROR(CheckCount(kPacked, name, given));
  if (given == 0) return {};
  for (size_t i = 1; i < bounds.size(); ++i) {
    const int32_t length = bounds[i] - bounds[i - 1];
    if (length <= given) continue;
    return Invalid(
        kPacked, name, std::to_string(given),
        "at least " + std::to_string(length) + ", the length of sequence " + std::to_string(i - 1));
  }
  return {};
}

Status CheckIndices(const RowIndices& rows) {
  const auto at = [](size_t i) { return "indices[" + std::to_string(i) + "]"; };
  std::vector<bool> taken(static_cast<size_t>(rows.total));
  for (size_t i = 0; i < rows.indices.size(); ++i) {
    const int64_t index = rows.indices[i];
    if (index < 0 || index >= rows.total) {
      return Invalid(kIndices, at(i), std::to_string(index),
                     "a row of " + std::to_string(rows.total));
    }
    if (taken[index]) {
      const auto* first = std::find(rows.indices.data(), rows.indices.data() + i, index);
      return Invalid(kIndices, at(i), std::to_string(index),
                     "a row that " + at(first - rows.indices.data()) + " has not taken");
    }
    taken[index] = true;
  }
  return {};
}

}  // namespace

Result<Batch> FromPacked(const Packed& packed, const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kPacked, options));
  SEGUE_RETURN_IF_ERROR(CheckCount(kPacked, "total_q", packed.total_q));
  SEGUE_RETURN_IF_ERROR(CheckCount(kPacked, "total_k", packed.total_k));
  const std::span<const int32_t> cu_q = packed.cu_seqlens_q;
  const std::span<const int32_t> cu_k = packed.cu_seqlens_k;
  if (cu_q.size() != cu_k.size()) {
    return Invalid(kPacked, "cu_seqlens_k", std::to_string(cu_k.size()) + " bounds",
                   "as many as cu_seqlens_q, " + std::to_string(cu_q.size()));
  }
  SEGUE_RETURN_IF_ERROR(CheckBounds(kPacked, "cu_seqlens_q", cu_q, packed.total_q, "total_q"));
  SEGUE_RETURN_IF_ERROR(CheckBounds(kPacked, "cu_seqlens_k", cu_k, packed.total_k, "total_k"));
  SEGUE_RETURN_IF_ERROR(CheckLongest("max_seqlen_q", packed.max_seqlen_q, cu_q));
  SEGUE_RETURN_IF_ERROR(CheckLongest("max_seqlen_k", packed.max_seqlen_k, cu_k));
  const TensorSet set = {.q = packed.q,
                         .k = packed.k,
                         .v = packed.v,
                         .o = packed.o,
                         .q_rows = packed.total_q,
                         .kv_rows = packed.total_k};
  SEGUE_RETURN_IF_ERROR(CheckTensorSet(kPacked, set, options));
  SegmentLists sequences;
  for (size_t i = 1; i < cu_q.size(); ++i) {
    sequences.push_back({{.source = 0,
                          .q_begin = cu_q[i - 1],
                          .q_rows = cu_q[i] - cu_q[i - 1],
                          .kv_begin = cu_k[i - 1],
                          .kv_rows = cu_k[i] - cu_k[i - 1]}});
  }
  return MakeBatch(kPacked, {set}, sequences);
}

Result<Batch> FromTrailingPadding(const TrailingPadding& padded, const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kTrailing, options));
  SEGUE_RETURN_IF_ERROR(CheckCount(kTrailing, "total", padded.total));
  if (padded.used < 0 || padded.used > padded.total) {
    return Invalid(kTrailing, "used", std::to_string(padded.used),
                   "0 to total, " + std::to_string(padded.total));
  }
  const TensorSet set = {.q = padded.q,
                         .k = padded.k,
                         .v = padded.v,
                         .o = padded.o,
                         .q_rows = padded.total,
                         .kv_rows = padded.total};
  SEGUE_RETURN_IF_ERROR(CheckTensorSet(kTrailing, set, options));
  // Always two sequences, so that a plan made for one `used` serves any other.
  return MakeBatch(
      kTrailing, {set},
      {{BothRows(0, 0, padded.used)}, {QueriesOnly(0, padded.used, padded.total - padded.used)}});
}

Result<Batch> FromRowIndices(const RowIndices& rows, const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kIndices, options));
  SEGUE_RETURN_IF_ERROR(CheckCount(kIndices, "total", rows.total));
  const auto count = static_cast<int64_t>(rows.indices.size());
  SEGUE_RETURN_IF_ERROR(
      CheckBounds(kIndices, "cu_seqlens", rows.cu_seqlens, count, "the number of indices"));
  SEGUE_RETURN_IF_ERROR(CheckIndices(rows));
  const TensorSet set = {.q = rows.q,
                         .k = rows.k,
                         .v = rows.v,
                         .o = rows.o,
                         .q_rows = rows.total,
                         .kv_rows = rows.total};
  SEGUE_RETURN_IF_ERROR(CheckTensorSet(kIndices, set, options));
  SegmentLists sequences;
  for (size_t i = 1; i < rows.cu_seqlens.size(); ++i) {
    std::vector<SegmentRows>& segments = sequences.emplace_back();
    const int64_t last = rows.cu_seqlens[i];
    for (int64_t begin = rows.cu_seqlens[i - 1]; begin < last;) {
      int64_t end = begin + 1;
      while (end < last && rows.indices[end] == rows.indices[end - 1] + 1) ++end;
      segments.push_back(BothRows(0, rows.indices[begin], end - begin));
      begin = end;
    }
  }
  return MakeBatch(kIndices, {set}, sequences);
}

}  // namespace segue::attention
