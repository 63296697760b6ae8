// Segments that bring their own pointers, and the way back.
//
// A segment has two halves: queries with outputs, keys with values. Each half is a range of rows of
// some tensor pair, numbered by address: address / row stride is the row, the remainder says which
// column of the tensor it is. Halves of one column pair lie on one number line, where ranges that
// touch join to a run. A tensor set is a run of queries beside a run of keys, so nothing but the
// segments' own rows is ever readable.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "attention/adapters/batch_parts.h"
#include "attention/rows_view.h"

namespace segue::attention {
namespace {

constexpr char kOp[] = "attention from sequences";
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

struct Where {
  size_t sequence = 0;
  size_t segment = 0;

  std::string Name(const char* tensor = nullptr) const {
    return "sequence " + std::to_string(sequence) + ", segment " + std::to_string(segment) +
           (tensor == nullptr ? "" : std::string(", ") + tensor);
  }
};

// A column of a tensor, and the row at which a view of it begins.
struct Position {
  std::array<int64_t, 3> column{};  // row stride and head stride in elements, phase in bytes
  int64_t row = 0;
  bool numbered = false;  // a row stride of 0 numbers nothing
};

Position PositionOf(const RowsView& view, const Options& options) {
  Position position;
  position.column = {view.row_stride, HeadStride(view, options.head_dim), 0};
  const int64_t stride = view.row_stride * ElementBytes(options.element_type);
  if (stride <= 0) return position;
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data));
  position.column[2] = address % stride;
  position.row = address / stride;
  position.numbered = true;
  return position;
}

// One half of a segment.
struct Half {
  std::array<int64_t, 8> line{};  // halves may join when these are equal
  int64_t row = 0;
  int64_t rows = 0;
  size_t index = 0;  // of the segment, counted through the sequences
  RowsView first;    // o, k
  RowsView second;   // q, v
};

Half MakeHalf(size_t index, const RowsView& first, const RowsView& second, int64_t rows,
              const Options& options) {
  const Position a = PositionOf(first, options);
  const Position b = PositionOf(second, options);
  const bool numbered = a.numbered && b.numbered;
  // A half that cannot be numbered has a line of its own.
  const int64_t own = numbered ? 0 : static_cast<int64_t>(index) + 1;
  return {.line = {a.column[0], a.column[1], a.column[2], b.column[0], b.column[1], b.column[2],
                   numbered ? b.row - a.row : 0, own},
          .row = a.row,
          .rows = rows,
          .index = index,
          .first = first,
          .second = second};
}

struct Run {
  RowsView first;
  RowsView second;
  int64_t rows = 0;
};

struct Place {
  int32_t run = -1;  // none: the half is empty
  int32_t begin = 0;
};

struct Runs {
  std::vector<Run> runs;
  std::vector<Place> places;  // of each segment
};

Runs Join(std::vector<Half> halves, size_t segments) {
  std::sort(halves.begin(), halves.end(), [](const Half& a, const Half& b) {
    if (a.line != b.line) return a.line < b.line;
    return a.row != b.row ? a.row < b.row : a.index < b.index;
  });
  Runs result;
  result.places.resize(segments);
  int64_t begin = 0;  // row of the current run's first
  for (size_t i = 0; i < halves.size(); ++i) {
    const Half& half = halves[i];
    const bool joins = i > 0 && half.line == halves[i - 1].line &&
                       half.row <= begin + result.runs.back().rows &&
                       half.row + half.rows - begin <= kMostRows;
    if (!joins) {
      result.runs.push_back({.first = half.first, .second = half.second});
      begin = half.row;
    }
    Run& run = result.runs.back();
    run.rows = std::max(run.rows, half.row + half.rows - begin);
    result.places[half.index] = {.run = static_cast<int32_t>(result.runs.size() - 1),
                                 .begin = static_cast<int32_t>(half.row - begin)};
  }
  return result;
}

Status CheckSegment(const Segment& segment, const Where& where, const Options& options) {
  for (const auto& [name, rows] :
       {std::pair{"q_rows", segment.q_rows}, std::pair{"kv_rows", segment.kv_rows}}) {
    if (rows >= 0 && rows <= kMostRows) continue;
    return Invalid(kOp, where.Name(name), std::to_string(rows), "0 to 2^31 - 1");
  }
  const auto shape = [&](const char* name, int64_t rows, int64_t heads) {
    return ViewShape{
        .name = where.Name(name), .rows = rows, .heads = heads, .head_dim = options.head_dim};
  };
  const int64_t q = segment.q_rows;
  const int64_t kv = segment.kv_rows;
  SEGUE_RETURN_IF_ERROR(CheckInput(kOp, shape("q", q, options.q_heads), segment.q));
  SEGUE_RETURN_IF_ERROR(CheckInput(kOp, shape("k", kv, options.kv_heads), segment.k));
  SEGUE_RETURN_IF_ERROR(CheckInput(kOp, shape("v", kv, options.kv_heads), segment.v));
  return CheckOutput(kOp, shape("o", q, options.q_heads), segment.o);
}

// Outputs of one column must not share rows.
Status CheckOutputsApart(std::vector<Half> queries, const std::vector<Where>& where) {
  for (Half& half : queries) {  // keep what the outputs alone say
    half.line = {half.line[0], half.line[1], half.line[2], half.line[0] > 0 ? 0 : half.line[7]};
  }
  std::sort(queries.begin(), queries.end(), [](const Half& a, const Half& b) {
    if (a.line != b.line) return a.line < b.line;
    return a.row != b.row ? a.row < b.row : a.index < b.index;
  });
  for (size_t i = 1; i < queries.size(); ++i) {
    const Half& a = queries[i - 1];
    const Half& b = queries[i];
    if (a.line != b.line || b.row >= a.row + a.rows) continue;
    return Invalid(kOp, where[b.index].Name("o"),
                   "rows that " + where[a.index].Name() + " writes as well", "rows of its own");
  }
  return {};
}

// Every row of a run is some segment's, so a run whose heads reach into one another's rows has
// segments that do.
Status CheckRuns(const Runs& queries, const std::vector<Where>& where, const Options& options) {
  for (size_t index = 0; index < where.size(); ++index) {
    if (queries.places[index].run < 0) continue;
    const Run& run = queries.runs[queries.places[index].run];
    const ViewShape shape = {.name = where[index].Name("o with the rows that follow it"),
                             .rows = run.rows,
                             .heads = options.q_heads,
                             .head_dim = options.head_dim};
    SEGUE_RETURN_IF_ERROR(CheckOutput(kOp, shape, run.first));
  }
  return {};
}

// Pairs runs of queries with runs of keys.
class SetTable {
 public:
  SetTable(const Runs& queries, const Runs& keys)
      : queries_(queries),
        keys_(keys),
        of_queries_(queries.runs.size(), -1),
        of_keys_(keys.runs.size(), -1) {
    // Segments with both halves decide which runs meet.
    for (size_t i = 0; i < queries.places.size(); ++i) {
      const std::pair<int32_t, int32_t> runs = {queries.places[i].run, keys.places[i].run};
      if (runs.first < 0 || runs.second < 0 || pairs_.count(runs) > 0) continue;
      pairs_[runs] = Add(runs.first, runs.second);
    }
    // Halves on their own take a set that has their run; those left fill sets two by two.
    std::vector<int32_t> lone_queries = Lone(of_queries_);
    std::vector<int32_t> lone_keys = Lone(of_keys_);
    const size_t left = std::max(lone_queries.size(), lone_keys.size());
    lone_queries.resize(left, -1);
    lone_keys.resize(left, -1);
    for (size_t i = 0; i < left; ++i) Add(lone_queries[i], lone_keys[i]);
  }

  std::vector<TensorSet> Take() && { return std::move(sets_); }

  SegmentRows Rows(size_t index, const Segment& segment) const {
    const Place& q = queries_.places[index];
    const Place& kv = keys_.places[index];
    SegmentRows rows{};
    if (q.run >= 0 && kv.run >= 0) {
      rows.source = pairs_.at({q.run, kv.run});
    } else if (q.run >= 0) {
      rows.source = of_queries_[q.run];
    } else if (kv.run >= 0) {
      rows.source = of_keys_[kv.run];
    }
    rows.q_begin = q.begin;
    rows.q_rows = static_cast<int32_t>(segment.q_rows);
    rows.kv_begin = kv.begin;
    rows.kv_rows = static_cast<int32_t>(segment.kv_rows);
    return rows;
  }

 private:
  static std::vector<int32_t> Lone(const std::vector<int32_t>& sets) {
    std::vector<int32_t> lone;
    for (size_t run = 0; run < sets.size(); ++run) {
      if (sets[run] < 0) lone.push_back(static_cast<int32_t>(run));
    }
    return lone;
  }

  int32_t Add(int32_t query_run, int32_t key_run) {
    const auto index = static_cast<int32_t>(sets_.size());
    TensorSet& set = sets_.emplace_back();
    if (query_run >= 0) {
      const Run& run = queries_.runs[query_run];
      set.o = run.first;
      set.q = run.second;
      set.q_rows = static_cast<int32_t>(run.rows);
      if (of_queries_[query_run] < 0) of_queries_[query_run] = index;
    }
    if (key_run >= 0) {
      const Run& run = keys_.runs[key_run];
      set.k = run.first;
      set.v = run.second;
      set.kv_rows = static_cast<int32_t>(run.rows);
      if (of_keys_[key_run] < 0) of_keys_[key_run] = index;
    }
    return index;
  }

  const Runs& queries_;
  const Runs& keys_;
  std::vector<TensorSet> sets_;
  std::map<std::pair<int32_t, int32_t>, int32_t> pairs_;
  std::vector<int32_t> of_queries_;  // the first set that has this run
  std::vector<int32_t> of_keys_;
};

}  // namespace

Result<Batch> FromSequences(std::span<const Sequence> sequences, const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kOp, options));
  std::vector<Where> where;
  std::vector<Half> queries;
  std::vector<Half> keys;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (size_t i = 0; i < sequences[s].segments.size(); ++i) {
      const Segment& segment = sequences[s].segments[i];
      const size_t index = where.size();
      where.push_back({.sequence = s, .segment = i});
      SEGUE_RETURN_IF_ERROR(CheckSegment(segment, where.back(), options));
      if (segment.q_rows > 0) {
        queries.push_back(MakeHalf(index, segment.o, segment.q, segment.q_rows, options));
      }
      if (segment.kv_rows > 0) {
        keys.push_back(MakeHalf(index, segment.k, segment.v, segment.kv_rows, options));
      }
    }
  }
  SEGUE_RETURN_IF_ERROR(CheckOutputsApart(queries, where));
  const Runs query_runs = Join(std::move(queries), where.size());
  SEGUE_RETURN_IF_ERROR(CheckRuns(query_runs, where, options));
  const Runs key_runs = Join(std::move(keys), where.size());
  SetTable sets(query_runs, key_runs);
  SegmentLists lists(sequences.size());
  for (size_t index = 0; index < where.size(); ++index) {
    const Segment& segment = sequences[where[index].sequence].segments[where[index].segment];
    lists[where[index].sequence].push_back(sets.Rows(index, segment));
  }
  return MakeBatch(kOp, std::move(sets).Take(), lists);
}

std::vector<Sequence> ToSequences(const Batch& batch, const Options& options) {
  const int64_t bytes = ElementBytes(options.element_type);
  std::vector<Sequence> sequences(static_cast<size_t>(batch.sequences()));
  for (size_t i = 0; i < sequences.size() * static_cast<size_t>(batch.segments); ++i) {
    const SegmentRows& from = batch.rows[i];
    if (from.q_rows == 0 && from.kv_rows == 0) continue;
    const TensorSet& set = batch.tensors[from.source];
    Segment segment = {.q_rows = from.q_rows, .kv_rows = from.kv_rows};
    if (from.q_rows > 0) {
      segment.q = RowsFrom(set.q, from.q_begin, bytes);
      segment.o = RowsFrom(set.o, from.q_begin, bytes);
    }
    if (from.kv_rows > 0) {
      segment.k = RowsFrom(set.k, from.kv_begin, bytes);
      segment.v = RowsFrom(set.v, from.kv_begin, bytes);
    }
    sequences[i / batch.segments].segments.push_back(segment);
  }
  return sequences;
}

}  // namespace segue::attention
