// One task of a packed product, a template over the instruction set.
//
// A task owns a block of rows and columns of y. It packs its rows of x for a span of k, then takes
// its columns panel by panel: a panel of kLinearBlockK weights is widened and transposed into the
// level-1 cache and multiplied with all packed rows. Weights are read once a task, from the file
// mapping, and nothing of them is kept.
#pragma once

#include "device/thread_pool.h"
#include "kernels/check.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/tile.h"

namespace segue::kernels::cpu {

template <class Isa>
class ProductTask {
 public:
  static constexpr int kTileRows = Isa::kTileRows;
  static constexpr int kTileCols = Isa::kTileVectors * Isa::kLanes;
  static constexpr int64_t kMostFloats = Isa::kPackedFloats + Isa::kLanes +
                                         kLinearBlockK * kTileCols + kTileCols +
                                         Isa::kPackedFloats / kLinearBlockK * Isa::kMostCols;
  static_assert(kMostFloats * int64_t{sizeof(float)} <= ThreadPool::kScratchBytes / 2);

  ProductTask(const ProductParams& params, const ProductBlocks& blocks, int64_t task, void* scratch)
      : params_(params),
        blocks_(blocks),
        element_(static_cast<int64_t>(SizeOf(params.weight.dtype))),
        row_begin_(task % blocks.row_tasks * blocks.rows),
        col_begin_(task / blocks.row_tasks * blocks.cols),
        rows_(Least(blocks.rows, params.y.rows - row_begin_)),
        cols_(Least(blocks.cols, params.y.cols - col_begin_)) {
    // The packed rows with room for PackRows to overshoot, a panel of weights, its bias, the sums.
    packed_ = static_cast<float*>(scratch);
    panel_ = packed_ + blocks.rows * blocks.depth + Isa::kLanes;
    bias_ = panel_ + kLinearBlockK * kTileCols;
    sums_ = bias_ + kTileCols;
  }

  void Run() {
    const int64_t depth = params_.depth;
    for (int64_t begin = 0; begin < depth; begin += blocks_.depth) {
      const int64_t span = Least(blocks_.depth, depth - begin);
      PackSpan(begin, span);
      for (int64_t col = 0; col < cols_; col += kTileCols) {
        for (int64_t k = 0; k < span; k += kLinearBlockK) {
          const int64_t block = Least(kLinearBlockK, span - k);
          PackPanel(begin + k, block, col);
          if (k + block < span) {
            PrefetchPanel(begin + k + block, col);
          } else if (col + kTileCols < cols_) {
            PrefetchPanel(begin, col + kTileCols);
          }
          MultiplyPanel(k, block, PanelSums(col), begin + k > 0);
        }
        if (begin + span == depth) Finish(col, PanelSums(col));
      }
    }
  }

 private:
  // Panels of kTileRows rows behind one another, each [span][rows of the panel].
  void PackSpan(int64_t begin, int64_t span) {
    span_ = span;
    for (int64_t row = 0; row < rows_; row += kTileRows) {
      float* out = packed_ + row * span;
      if (params_.window.taps > 0) {
        PackWindows(row, TileRowsAt(row), begin, span, out);
      } else {
        PackPlainRows(row, TileRowsAt(row), begin, span, out);
      }
    }
  }

  void PackPlainRows(int64_t row, int count, int64_t begin, int64_t span, float* out) {
    const float* rows[kTileRows];
    for (int r = 0; r < count; ++r) {
      rows[r] = XRow(row + r) + begin;
      // The rows of the next panel; a row's own lines follow one another and come by themselves.
      if (row + r + kTileRows < rows_) {
        __builtin_prefetch(XRow(row + r + kTileRows) + begin);
        __builtin_prefetch(XRow(row + r + kTileRows) + begin + 16);
      }
    }
    PackRows<Isa>(rows, count, span, out);
  }

  void PackWindows(int64_t row, int count, int64_t begin, int64_t span, float* out) {
    static constexpr float kOutside[kLinearBlockK] = {};
    const ImageWindow& window = params_.window;
    const int64_t channels = params_.x.cols;
    const int64_t height = window.height << window.doublings;
    const int64_t width = window.width << window.doublings;
    int64_t y[kTileRows];  // of the output pixels
    int64_t x[kTileRows];
    y[0] = (row_begin_ + row) / width;
    x[0] = (row_begin_ + row) % width;
    for (int r = 1; r < count; ++r) {
      const bool wraps = x[r - 1] + 1 == width;
      y[r] = y[r - 1] + (wraps ? 1 : 0);
      x[r] = wraps ? 0 : x[r - 1] + 1;
    }
    int64_t tap = begin / channels;
    int64_t channel = begin % channels;
    const float* rows[kTileRows];
    for (int64_t left = span; left > 0;) {
      const int64_t piece = Least(Least(channels - channel, left), kLinearBlockK);
      const int64_t dy = tap / window.taps - window.taps / 2;
      const int64_t dx = tap % window.taps - window.taps / 2;
      for (int r = 0; r < count; ++r) {
        const int64_t py = y[r] + dy;
        const int64_t px = x[r] + dx;
        const bool inside = py >= 0 && py < height && px >= 0 && px < width;
        const int64_t pixel = (py >> window.doublings) * window.width + (px >> window.doublings);
        rows[r] = inside ? params_.x.template Row<float>(pixel) + channel : kOutside;
      }
      PackRows<Isa>(rows, count, piece, out);
      out += piece * count;
      left -= piece;
      channel += piece;
      if (channel == channels) {
        channel = 0;
        ++tap;
      }
    }
  }

  // Weights [k, k + depth) of one panel of columns; columns behind the last one are zeros.
  void PackPanel(int64_t k, int64_t depth, int64_t col) {
    const char* rows[kTileCols];
    const int64_t valid = Least(kTileCols, cols_ - col);
    for (int64_t j = 0; j < valid; ++j) rows[j] = WeightRow(col + j) + k * element_;
    for (int v = 0; v < Isa::kTileVectors; ++v) {
      const auto count = static_cast<int>(Least(valid - v * Isa::kLanes, Isa::kLanes));
      PackColumns<Isa>(params_.weight.dtype, rows + v * Isa::kLanes, count, depth, kTileCols,
                       panel_ + v * Isa::kLanes);
    }
  }

  // A panel's rows lie in different pages, where no hardware prefetcher looks.
  void PrefetchPanel(int64_t k, int64_t col) {
    const int64_t bytes = Least(kLinearBlockK, params_.depth - k) * element_;
    const int64_t valid = Least(kTileCols, cols_ - col);
    for (int64_t j = 0; j < valid; ++j) {
      const char* row = WeightRow(col + j) + k * element_;
      for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }
  }

  // Adds (or, first, stores) the packed block of weights times all rows; `k` within the span.
  void MultiplyPanel(int64_t k, int64_t depth, float* sums, bool add) {
    for (int64_t row = 0; row < rows_; row += kTileRows) {
      const int count = TileRowsAt(row);
      const float* packed = packed_ + row * span_ + k * count;
      TileOf<Isa, kTileRows, Isa::kTileVectors>(count)(depth, packed, panel_,
                                                       sums + row * kTileCols, kTileCols, add);
    }
  }

  // Bias, rounding, activation and residual of one panel of columns.
  void Finish(int64_t col, const float* sums) {
    const int64_t valid = Least(kTileCols, cols_ - col);
    const bool biased = params_.bias.present();
    for (int64_t j = 0; biased && j < valid; ++j) {
      bias_[j] = WeightAt(params_.bias, col_begin_ + col + j);
    }
    for (int64_t row = 0; row < rows_; ++row, sums += kTileCols) {
      float* y = params_.y.template Row<float>(row_begin_ + row) + col_begin_ + col;
      const float* residual = nullptr;
      if (params_.residual.data != nullptr) {
        residual = params_.residual.template Row<float>(row_begin_ + row) + col_begin_ + col;
      }
      int64_t j = 0;
      for (; j + Isa::kLanes <= valid; j += Isa::kLanes) {
        auto value = Isa::Load(sums + j);
        if (biased) value = value + Isa::Load(bias_ + j);
        value = Activated(value);
        if (residual != nullptr) value = Isa::Load(residual + j) + Step(value);
        Isa::Store(y + j, Round<Isa>(value, params_.rounding));
      }
      if (j == valid) continue;
      const int64_t left = valid - j;
      auto value = Isa::LoadPartial(sums + j, left);
      if (biased) value = value + Isa::LoadPartial(bias_ + j, left);
      value = Activated(value);
      if (residual != nullptr) value = Isa::LoadPartial(residual + j, left) + Step(value);
      Isa::StorePartial(y + j, left, Round<Isa>(value, params_.rounding));
    }
  }

  SEGUE_INLINE typename Isa::V Step(typename Isa::V value) const {
    return RoundStep<Isa>(value, params_.rounding);
  }
  SEGUE_INLINE typename Isa::V Activated(typename Isa::V sum) const {
    if (params_.activation == Activation::kNone) return sum;
    return ApplyActivation<Isa>(Step(sum), params_.activation);
  }

  int TileRowsAt(int64_t row) const { return static_cast<int>(Least(kTileRows, rows_ - row)); }
  const float* XRow(int64_t row) const { return params_.x.template Row<float>(row_begin_ + row); }
  const char* WeightRow(int64_t col) const {
    return static_cast<const char*>(params_.weight.data) +
           (col_begin_ + col) * params_.depth * element_;
  }
  // Sums of a panel, [rows of the task][kTileCols]. When x is packed in one span a panel is
  // finished before the next one begins.
  float* PanelSums(int64_t col) const {
    return sums_ + (blocks_.depth == params_.depth ? 0 : col * blocks_.rows);
  }

  const ProductParams& params_;
  const ProductBlocks& blocks_;
  int64_t element_;
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
