#include "attention/adapters/batch_parts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attention/rows_view.h"

namespace segue::attention {
namespace {

constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
// Segments of a batch: they take 2.5 GiB; lengths that need more are a mistake.
constexpr int64_t kMostEntries = int64_t{1} << 27;

Status CheckQueryRows(const char* operation, int64_t rows) {
  if (rows <= kMostRows) return {};
  return Invalid(operation, "batch", std::to_string(rows) + " query rows", "at most 2^31 - 1");
}

// Rows from one sequence to the next when all of both views' rows are numbered through; false when
// they cannot be. Row strides that mean nothing (a single row) are given a meaning.
bool FindStep(DenseView& a, DenseView& b, int64_t rows, int64_t batch, int64_t& step) {
  step = 0;
  if (rows == 0 || batch <= 1) return true;
  if (a.batch_stride == 0 && b.batch_stride == 0) return true;
  if (rows == 1 && a.batch_stride > 0 && b.batch_stride > 0) {
    a.rows.row_stride = a.batch_stride;
    b.rows.row_stride = b.batch_stride;
    step = 1;
    return true;
  }
  if (a.rows.row_stride <= 0 || b.rows.row_stride <= 0) return false;
  step = a.batch_stride / a.rows.row_stride;
  return step * a.rows.row_stride == a.batch_stride && step == b.batch_stride / b.rows.row_stride &&
         step * b.rows.row_stride == b.batch_stride;
}

RowsView OfSequence(const DenseView& view, int64_t sequence, const Options& options) {
  RowsView rows = view.rows;
  if (rows.data != nullptr) {
    rows.data = static_cast<char*>(rows.data) +
                sequence * view.batch_stride * ElementBytes(options.element_type);
  }
  return rows;
}

Status CheckDense(const char* operation, const std::string& name, const Dense& dense,
                  const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckCount(operation, name + "batch", dense.batch));
  SEGUE_RETURN_IF_ERROR(CheckCount(operation, name + "q_rows", dense.q_rows));
  SEGUE_RETURN_IF_ERROR(CheckCount(operation, name + "kv_rows", dense.kv_rows));
  if (dense.batch > kMostEntries) {
    return Invalid(operation, name + "batch", std::to_string(dense.batch), "at most 2^27");
  }
  SEGUE_RETURN_IF_ERROR(CheckQueryRows(operation, int64_t{dense.batch} * dense.q_rows));
  const auto shape = [&](const char* tensor, const DenseView& view, int64_t rows, int64_t heads) {
    return ViewShape{.name = name + tensor,
                     .rows = rows,
                     .heads = heads,
                     .head_dim = options.head_dim,
                     .batch = dense.batch,
                     .batch_stride = view.batch_stride};
  };
  const int64_t q_heads = options.q_heads;
  const int64_t kv_heads = options.kv_heads;
  SEGUE_RETURN_IF_ERROR(
      CheckInput(operation, shape("q", dense.q, dense.q_rows, q_heads), dense.q.rows));
  SEGUE_RETURN_IF_ERROR(
      CheckInput(operation, shape("k", dense.k, dense.kv_rows, kv_heads), dense.k.rows));
  SEGUE_RETURN_IF_ERROR(
      CheckInput(operation, shape("v", dense.v, dense.kv_rows, kv_heads), dense.v.rows));
  return CheckOutput(operation, shape("o", dense.o, dense.q_rows, q_heads), dense.o.rows);
}

}  // namespace

Result<Batch> MakeBatch(const char* operation, std::vector<TensorSet> tensors,
                        const SegmentLists& sequences) {
  int64_t query_rows = 0;
  size_t segments = 1;
  for (const std::vector<SegmentRows>& sequence : sequences) {
    segments = std::max(segments, sequence.size());
    for (const SegmentRows& segment : sequence) query_rows += segment.q_rows;
  }
  SEGUE_RETURN_IF_ERROR(CheckQueryRows(operation, query_rows));
  if (!sequences.empty() && segments > size_t{kMostEntries} / sequences.size()) {
    return Invalid(operation, "batch",
                   std::to_string(sequences.size()) + " sequences of up to " +
                       std::to_string(segments) + " segments",
                   "at most 2^27 segments");
  }
  Batch batch;
  batch.tensors = std::move(tensors);
  batch.segments = static_cast<int32_t>(segments);
  batch.rows.resize(sequences.size() * segments);
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::copy(sequences[i].begin(), sequences[i].end(), batch.rows.begin() + i * segments);
  }
  return batch;
}

Status CheckCount(const char* operation, const std::string& name, int64_t value) {
  if (value >= 0) return {};
  return Invalid(operation, name, std::to_string(value), "0 or more");
}

Status CheckTensorSet(const char* operation, const TensorSet& set, const Options& options) {
  const auto shape = [&options](const char* name, int64_t rows, int64_t heads) {
    return ViewShape{.name = name, .rows = rows, .heads = heads, .head_dim = options.head_dim};
  };
  SEGUE_RETURN_IF_ERROR(CheckInput(operation, shape("q", set.q_rows, options.q_heads), set.q));
  SEGUE_RETURN_IF_ERROR(CheckInput(operation, shape("k", set.kv_rows, options.kv_heads), set.k));
  SEGUE_RETURN_IF_ERROR(CheckInput(operation, shape("v", set.kv_rows, options.kv_heads), set.v));
  return CheckOutput(operation, shape("o", set.q_rows, options.q_heads), set.o);
}

Status CheckBounds(const char* operation, const std::string& name, std::span<const int32_t> bounds,
                   int64_t total, const std::string& total_name) {
  const auto at = [&name](size_t i) { return name + "[" + std::to_string(i) + "]"; };
  if (bounds.empty()) return Invalid(operation, name, "no bounds", "at least 1, a zero");
  if (bounds[0] != 0) return Invalid(operation, at(0), std::to_string(bounds[0]), "0");
  for (size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] < bounds[i - 1]) {
      return Invalid(operation, at(i), std::to_string(bounds[i]),
                     "at least " + at(i - 1) + ", " + std::to_string(bounds[i - 1]));
    }
    if (bounds[i] > total) {
      return Invalid(operation, at(i), std::to_string(bounds[i]),
                     "at most " + total_name + ", " + std::to_string(total));
    }
  }
  if (bounds.back() != total) {
    return Invalid(operation, at(bounds.size() - 1), std::to_string(bounds.back()),
                   total_name + ", " + std::to_string(total));
  }
  return {};
}

Result<DenseSets> DenseSets::Make(const char* operation, const std::string& name,
                                  const Dense& dense, const Options& options,
                                  int32_t first_source) {
  SEGUE_RETURN_IF_ERROR(CheckDense(operation, name, dense, options));
  DenseSets sets;
  sets.dense_ = dense;
  sets.first_source_ = first_source;
  if (dense.batch == 0) return sets;
  Dense all = dense;  // with row strides under which the rows of all sequences are numbered
  sets.shared_ = FindStep(all.q, all.o, dense.q_rows, dense.batch, sets.q_step_) &&
                 FindStep(all.k, all.v, dense.kv_rows, dense.batch, sets.kv_step_);
  if (!sets.shared_) sets.q_step_ = sets.kv_step_ = 0;
  const int64_t q_rows = (dense.batch - 1) * sets.q_step_ + dense.q_rows;
  const int64_t kv_rows = (dense.batch - 1) * sets.kv_step_ + dense.kv_rows;
  sets.shared_ = sets.shared_ && q_rows <= kMostRows && kv_rows <= kMostRows;
  if (sets.shared_) {
    sets.tensors_.push_back({.q = all.q.rows,
                             .k = all.k.rows,
                             .v = all.v.rows,
                             .o = all.o.rows,
                             .q_rows = static_cast<int32_t>(q_rows),
                             .kv_rows = static_cast<int32_t>(kv_rows)});
    return sets;
  }
  for (int64_t sequence = 0; sequence < dense.batch; ++sequence) {
    sets.tensors_.push_back({.q = OfSequence(dense.q, sequence, options),
                             .k = OfSequence(dense.k, sequence, options),
                             .v = OfSequence(dense.v, sequence, options),
                             .o = OfSequence(dense.o, sequence, options),
                             .q_rows = dense.q_rows,
                             .kv_rows = dense.kv_rows});
  }
  return sets;
}

int32_t DenseSets::Source(int64_t sequence) const {
  return first_source_ + (shared_ ? 0 : static_cast<int32_t>(sequence));
}

SegmentRows DenseSets::Both(int64_t sequence, int64_t begin, int64_t rows) const {
  SegmentRows segment = Queries(sequence, begin, rows);
  segment.kv_begin = static_cast<int32_t>(KvBegin(sequence) + begin);
  segment.kv_rows = static_cast<int32_t>(rows);
  return segment;
}

SegmentRows DenseSets::Queries(int64_t sequence, int64_t begin, int64_t rows) const {
  return QueriesOnly(Source(sequence), QBegin(sequence) + begin, rows);
}

SegmentRows DenseSets::All(int64_t sequence) const {
  SegmentRows segment = Queries(sequence, 0, dense_.q_rows);
  segment.kv_begin = static_cast<int32_t>(KvBegin(sequence));
  segment.kv_rows = dense_.kv_rows;
  return segment;
}

}  // namespace segue::attention
