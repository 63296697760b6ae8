// One tile of attention, a template over the instruction set.
//
// Registers run over queries: scores are computed transposed, [key][query], so that a row's maximum
// and sum are plain vertical operations in ascending key order, and the exponentials are at once
// the packed operand of the second product. A lane is one query row: it never meets another.
//
//   scores[key][query] = K[key] . Q[query]          tiles of kRows keys
//   largest, sum, p = exp(score - largest)          online softmax
//   out[dim][query] += sum over key of V[key][dim] p[key][query]
#pragma once

#include <cstring>
#include <limits>

#include "attention/backends/cpu.h"
#include "device/thread_pool.h"
#include "kernels/cpu/tile.h"
#include "kernels/math.h"

namespace segue::attention {

using kernels::cpu::Least;

template <class Isa>
class AttentionTile {
 public:
  using V = typename Isa::V;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kVectors = 3;
  static constexpr int kPanel = kVectors * kLanes;  // query rows
  static constexpr int kRows = Isa::kAttentionRows;
  static constexpr int64_t kPanels = (kQueryBlock + kPanel - 1) / kPanel;
  static constexpr int64_t kMostFloats = (2 * kPanels * kPanel + 2 * kKeyTile) * kMostHeadDim +
                                         kKeyTile * kPanel + 2 * kPanels * kPanel + 2 * kLanes;
  static_assert(kMostFloats * int64_t{sizeof(float)} <= ThreadPool::kScratchBytes);

  AttentionTile(const Params& params, const TilePlan& plan, const Tile& tile, void* scratch)
      : params_(params),
        sequence_(params.sequences[tile.sequence]),
        tile_(tile),
        dim_(params.options.head_dim),
        keys_(plan.rows[tile.sequence].key),
        first_limit_(keys_ - plan.rows[tile.sequence].query + 1 + tile.query_begin),
        lse_(params.lse == nullptr ? nullptr
                                   : params.lse + tile.head * plan.total_query_rows +
                                         plan.query_offset[tile.sequence] + tile.query_begin) {
    queries_ = static_cast<float*>(scratch);
    out_ = queries_ + kPanels * kPanel * dim_;
    largest_ = out_ + kPanels * kPanel * dim_;
    sum_ = largest_ + kPanels * kPanel;
    scores_ = sum_ + kPanels * kPanel;
    key_panels_ = scores_ + kKeyTile * kPanel;
    value_panels_ = key_panels_ + kKeyTile * dim_ + kLanes;  // PackRows overshoots
  }

  void Run() {
    PackQueries();
    int64_t seen = keys_;
    if (params_.options.causal) seen = Least(keys_, first_limit_ + tile_.query_rows - 1);
    for (int64_t key = 0; key < seen; key += kKeyTile) {
      const int64_t count = Least(kKeyTile, keys_ - key);
      PackKeys(key, count);
      PackValues(key, count);
      for (int64_t row = 0; row < tile_.query_rows; row += kPanel) {
        ScorePanel(row, count);
        if (params_.options.causal && key + count > first_limit_ + row) {
          MaskPanel(row, key, count);
        }
        SoftmaxPanel(row, count);
        AccumulatePanel(row, count);
      }
    }
    for (int64_t row = 0; row < tile_.query_rows; row += kPanel) WritePanel(row);
  }

 private:
  // Panels [dim][kPanel], scaled; lanes behind the last row are zeros.
  void PackQueries() {
    float* rows[kPanel];
    for (int64_t row = 0; row < tile_.query_rows; row += kPanel) {
      const int64_t count = Least(kPanel, tile_.query_rows - row);
      GatherRows(sequence_, {&Segment::q, &Segment::q_rows, tile_.head, dim_},
                 tile_.query_begin + row, count, rows);
      const char* sources[kPanel];
      for (int64_t i = 0; i < count; ++i) sources[i] = reinterpret_cast<const char*>(rows[i]);
      float* panel = queries_ + row * dim_;
      for (int v = 0; v < kVectors; ++v) {
        kernels::cpu::PackColumns<Isa>(DType::kF32, sources + v * kLanes,
                                       static_cast<int>(Least(count - v * kLanes, kLanes)), dim_,
                                       kPanel, panel + v * kLanes);
      }
      const V scale = Isa::Set(params_.options.softmax_scale);
      for (int64_t i = 0; i < kPanel * dim_; i += kLanes) {
        Isa::Store(panel + i, Isa::Load(panel + i) * scale);
        Isa::Store(out_ + row * dim_ + i, Isa::Zero());
      }
      for (int64_t i = 0; i < kPanel; i += kLanes) {
        Isa::Store(largest_ + row + i, Isa::Set(kMinusInfinity));
        Isa::Store(sum_ + row + i, Isa::Zero());
      }
    }
  }

  // Panels of kRows keys behind one another, each [dim][keys of the panel].
  void PackKeys(int64_t key, int64_t count) {
    float* rows[kKeyTile];
    GatherRows(sequence_, {&Segment::k, &Segment::kv_rows, KvHead(), dim_}, key, count, rows);
    for (int64_t i = 0; i < count; i += kRows) {
      kernels::cpu::PackRows<Isa>(rows + i, static_cast<int>(Least(kRows, count - i)), dim_,
                                  key_panels_ + i * dim_);
    }
  }

  // Panels of kRows dimensions behind one another, each [key][dimensions of the panel].
  void PackValues(int64_t key, int64_t count) {
    float* rows[kKeyTile];
    GatherRows(sequence_, {&Segment::v, &Segment::kv_rows, KvHead(), dim_}, key, count, rows);
    const int64_t whole = dim_ / kRows * kRows;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t d = 0; d < whole; d += kRows) {
        std::memcpy(value_panels_ + d * count + i * kRows, rows[i] + d, kRows * sizeof(float));
      }
      for (int64_t d = whole; d < dim_; ++d) {
        value_panels_[whole * count + i * (dim_ - whole) + d - whole] = rows[i][d];
      }
    }
  }

  void ScorePanel(int64_t row, int64_t count) {
    for (int64_t i = 0; i < count; i += kRows) {
      const auto keys = static_cast<int>(Least(kRows, count - i));
      kernels::cpu::TileOf<Isa, kRows, kVectors>(keys)(
          dim_, key_panels_ + i * dim_, queries_ + row * dim_, scores_ + i * kPanel, kPanel, false);
    }
  }

  // Query row r of the tile sees the keys below first_limit_ + r.
  void MaskPanel(int64_t row, int64_t key, int64_t count) {
    alignas(64) float limits[kPanel];
    for (int64_t i = 0; i < kPanel; ++i) limits[i] = static_cast<float>(first_limit_ + row + i);
    for (int64_t i = 0; i < count; ++i) {
      const V index = Isa::Set(static_cast<float>(key + i));
      for (int v = 0; v < kVectors; ++v) {
        float* at = scores_ + i * kPanel + v * kLanes;
        Isa::Store(at, Isa::WhereLess(index, Isa::Load(limits + v * kLanes), Isa::Load(at),
                                      Isa::Set(kMinusInfinity)));
      }
    }
  }

  // Replaces the scores by exponentials and rescales what was accumulated so far.
  void SoftmaxPanel(int64_t row, int64_t count) {
    V largest[kVectors];
    for (int v = 0; v < kVectors; ++v) largest[v] = Isa::Load(largest_ + row + v * kLanes);
    for (int64_t i = 0; i < count; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        largest[v] = Isa::Max(largest[v], Isa::Load(scores_ + i * kPanel + v * kLanes));
      }
    }
    V shift[kVectors];
    V sum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      // A row that has seen no key yet keeps -infinity, which must not meet itself below.
      shift[v] = Isa::WhereLess(largest[v], Isa::Set(std::numeric_limits<float>::lowest()),
                                Isa::Zero(), largest[v]);
      sum[v] = Isa::Zero();
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        float* at = scores_ + i * kPanel + v * kLanes;
        const V p = kernels::ExpOfNonPositive<Isa>(Isa::Load(at) - shift[v]);
        sum[v] = sum[v] + p;
        Isa::Store(at, p);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      float* at = largest_ + row + v * kLanes;
      const V rescale = kernels::ExpOfNonPositive<Isa>(Isa::Load(at) - shift[v]);
      Isa::Store(at, largest[v]);
      float* total = sum_ + row + v * kLanes;
      Isa::Store(total, Isa::Load(total) * rescale + sum[v]);
      float* out = out_ + row * dim_ + v * kLanes;
      for (int64_t d = 0; d < dim_; ++d) {
        Isa::Store(out + d * kPanel, Isa::Load(out + d * kPanel) * rescale);
      }
    }
  }

  void AccumulatePanel(int64_t row, int64_t count) {
    for (int64_t d = 0; d < dim_; d += kRows) {
      const auto dims = static_cast<int>(Least(kRows, dim_ - d));
      kernels::cpu::TileOf<Isa, kRows, kVectors>(dims)(
          count, value_panels_ + d * count, scores_, out_ + row * dim_ + d * kPanel, kPanel, true);
    }
  }

  void WritePanel(int64_t row) {
    const int64_t count = Least(kPanel, tile_.query_rows - row);
    float* rows[kPanel];
    GatherRows(sequence_, {&Segment::o, &Segment::q_rows, tile_.head, dim_},
               tile_.query_begin + row, count, rows);
    for (int v = 0; v * kLanes < count; ++v) {
      const V sum = Isa::Load(sum_ + row + v * kLanes);
      for (int64_t d = 0; d < dim_; d += kLanes) {
        V block[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          block[i] = Isa::Zero();
          if (d + i >= dim_) continue;
          const V value = Isa::Load(out_ + row * dim_ + (d + i) * kPanel + v * kLanes) / sum;
          // Any key gives a sum of at least 1; none gives 0, and zeros as the result.
          block[i] = kernels::Round<Isa>(Isa::WhereLess(sum, Isa::Set(0.5f), Isa::Zero(), value),
                                         params_.rounding);
        }
        Isa::Transpose(block);
        const int64_t left = dim_ - d;
        for (int i = 0; i < kLanes && v * kLanes + i < count; ++i) {
          float* at = rows[v * kLanes + i] + d;
          if (left >= kLanes) {
            Isa::Store(at, block[i]);
          } else {
            Isa::StorePartial(at, left, block[i]);
          }
        }
      }
    }
    if (lse_ == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      lse_[row + i] = largest_[row + i] + __builtin_logf(sum_[row + i]);
    }
  }

  int64_t KvHead() const {
    const Options& options = params_.options;
    return tile_.head / (options.q_heads / options.kv_heads);
  }

  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

  const Params& params_;
  const Sequence& sequence_;
  const Tile& tile_;
  int64_t dim_;
  int64_t keys_;
  int64_t first_limit_;  // causal: keys that the tile's first row sees, at most; may be negative
  float* lse_;
  float* queries_;
  float* out_;
  float* largest_;
  float* sum_;
  float* scores_;
  float* key_panels_;
  float* value_panels_;
};

}  // namespace segue::attention
