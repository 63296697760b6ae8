// The packed product of Linear, a template over the instruction set.
//
// A task owns a block of rows and columns of y. It packs its rows of x for a span of k, then takes
// its columns panel by panel: a panel of kLinearBlockK weights is widened and transposed into the
// level-1 cache and multiplied with all packed rows. Weights are read once a task, from the file
// mapping, and nothing of them is kept.
#pragma once

#include "kernels/check.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/tile.h"
#include "kernels/linear.h"

namespace segue::kernels::cpu {

template <class Isa>
class LinearTask {
 public:
  static constexpr int kTileRows = Isa::kTileRows;
  static constexpr int kTileCols = Isa::kTileVectors * Isa::kLanes;

  LinearTask(const LinearParams& params, const ProductBlocks& blocks, int64_t task, void* scratch)
      : params_(params),
        blocks_(blocks),
        row_begin_(task % blocks.row_tasks * blocks.rows),
        col_begin_(task / blocks.row_tasks * blocks.cols),
        rows_(Least(blocks.rows, params.y.rows - row_begin_)),
        cols_(Least(blocks.cols, params.y.cols - col_begin_)) {
    // The packed rows, with room for PackRows to overshoot; then the panel of weights, the bias,
    // and (only to accumulate over several spans of k) the sums.
    packed_ = static_cast<float*>(scratch);
    panel_ = packed_ + blocks.rows * blocks.depth + Isa::kLanes;
    bias_ = panel_ + kLinearBlockK * kTileCols;
    sums_ = bias_ + kTileCols;
  }

  void Run() {
    const int64_t depth = params_.x.cols;
    for (int64_t begin = 0; begin < depth; begin += blocks_.depth) {
      const int64_t span = Least(blocks_.depth, depth - begin);
      PackSpan(begin, span);
      for (int64_t col = 0; col < cols_; col += kTileCols) {
        const int64_t valid = Least(kTileCols, cols_ - col);
        for (int64_t k = 0; k < span; k += kLinearBlockK) {
          MultiplyPanel(begin + k, k, Least(kLinearBlockK, span - k), col, valid);
        }
        if (begin + span == depth) Finish(col, valid);
      }
    }
  }

 private:
  // Panels of kTileRows rows behind one another, each [span][rows of the panel].
  void PackSpan(int64_t begin, int64_t span) {
    for (int64_t row = 0; row < rows_; row += kTileRows) {
      const int count = TileRowsAt(row);
      const float* rows[kTileRows];
      for (int r = 0; r < count; ++r) rows[r] = XRow(row + r) + begin;
      PackRows<Isa>(rows, count, span, packed_ + row * span);
    }
    span_ = span;
  }

  // Adds the block [k, k + depth) of the sum to all rows of one panel of columns. `offset` is k
  // within the packed span.
  void MultiplyPanel(int64_t k, int64_t offset, int64_t depth, int64_t col, int64_t valid) {
    const int64_t element = static_cast<int64_t>(SizeOf(params_.weight.dtype));
    const char* rows[kTileCols];
    for (int64_t j = 0; j < valid; ++j) {
      rows[j] = static_cast<const char*>(params_.weight.data) +
                ((col_begin_ + col + j) * params_.x.cols + k) * element;
    }
    for (int v = 0; v < Isa::kTileVectors; ++v) {
      const auto count = static_cast<int>(Least(valid - v * Isa::kLanes, Isa::kLanes));
      PackColumns<Isa>(params_.weight.dtype, rows + v * Isa::kLanes, count, depth, kTileCols,
                       panel_ + v * Isa::kLanes);
    }
    for (int64_t row = 0; row < rows_; row += kTileRows) {
      const int count = TileRowsAt(row);
      const float* packed = packed_ + row * span_ + offset * count;
      const auto tile = TileOf<Isa, kTileRows, Isa::kTileVectors>(count);
      if (valid == kTileCols) {
        tile(depth, packed, panel_, SumRow(row) + col, sum_stride(), k > 0);
      } else {
        alignas(64) float edge[kTileRows * kTileCols];
        tile(depth, packed, panel_, edge, kTileCols, false);
        for (int r = 0; r < count; ++r) {
          float* sums = SumRow(row + r) + col;
          for (int64_t j = 0; j < valid; ++j) {
            sums[j] = k > 0 ? sums[j] + edge[r * kTileCols + j] : edge[r * kTileCols + j];
          }
        }
      }
    }
  }

  // Bias, rounding, activation and accumulation of one panel of columns.
  void Finish(int64_t col, int64_t valid) {
    const bool biased = params_.bias.present();
    for (int64_t j = 0; biased && j < valid; ++j) {
      bias_[j] = WeightAt(params_.bias, col_begin_ + col + j);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      const float* sums = SumRow(row) + col;
      float* y = params_.y.template Row<float>(row_begin_ + row) + col_begin_ + col;
      int64_t j = 0;
      for (; j + Isa::kLanes <= valid; j += Isa::kLanes) {
        auto value = Isa::Load(sums + j);
        if (biased) value = value + Isa::Load(bias_ + j);
        value = Result(value);
        if (params_.accumulate) {
          value = Round<Isa>(Isa::Load(y + j) + value, params_.rounding);
        }
        Isa::Store(y + j, value);
      }
      if (j == valid) continue;
      const int64_t left = valid - j;
      auto value = Isa::LoadPartial(sums + j, left);
      if (biased) value = value + Isa::LoadPartial(bias_ + j, left);
      value = Result(value);
      if (params_.accumulate) {
        value = Round<Isa>(Isa::LoadPartial(y + j, left) + value, params_.rounding);
      }
      Isa::StorePartial(y + j, left, value);
    }
  }

  SEGUE_INLINE typename Isa::V Result(typename Isa::V sum) const {
    const auto value = Round<Isa>(sum, params_.rounding);
    if (params_.activation == Activation::kNone) return value;
    return Round<Isa>(ApplyActivation<Isa>(value, params_.activation), params_.rounding);
  }

  int TileRowsAt(int64_t row) const { return static_cast<int>(Least(kTileRows, rows_ - row)); }
  const float* XRow(int64_t row) const { return params_.x.template Row<float>(row_begin_ + row); }
  // Sums are kept in y itself, unless y's own values are still needed.
  float* SumRow(int64_t row) const {
    return params_.accumulate ? sums_ + row * blocks_.cols
                              : params_.y.template Row<float>(row_begin_ + row) + col_begin_;
  }
  int64_t sum_stride() const { return params_.accumulate ? blocks_.cols : params_.y.stride; }

  const LinearParams& params_;
  const ProductBlocks& blocks_;
  int64_t row_begin_;
  int64_t col_begin_;
  int64_t rows_;
  int64_t cols_;
  int64_t span_ = 0;
  float* packed_;
  float* panel_;
  float* bias_;
  float* sums_;
};

}  // namespace segue::kernels::cpu
