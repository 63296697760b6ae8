#include "kernels/cpu/blocks.h"

#include <algorithm>

#include "kernels/linear.h"

namespace segue::kernels::cpu {
namespace {

// Below this many multiply-adds (some 5 us of one core) waking other threads costs more than it
// saves.
constexpr int64_t kWorthSharing = int64_t{1} << 18;
// Tasks a thread: enough that a thread that starts late or is interrupted leaves little undone.
constexpr int64_t kTasksPerThread = 6;
// A task packs its rows of x once for all of its columns; with 4 panels that costs 10 % or less.
constexpr int64_t kFewestPanels = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ProductBlocks ChooseBlocks(const ProductShape& shape, const TileLimits& limits, int threads) {
  const int64_t row_panels = CeilDiv(shape.rows, limits.tile_rows);
  const int64_t col_panels = CeilDiv(shape.cols, limits.tile_cols);
  const int64_t most_rows = limits.packed_floats / (kLinearBlockK * limits.tile_rows);

  int64_t row_tasks = CeilDiv(row_panels, most_rows);
  int64_t col_tasks = CeilDiv(shape.cols, limits.most_cols);
  const bool shared = threads > 1 && shape.rows * shape.cols >= CeilDiv(kWorthSharing, shape.depth);
  if (shared) {
    const int64_t wanted = threads * kTasksPerThread;
    col_tasks =
        std::max(col_tasks, std::min(CeilDiv(wanted, row_tasks), col_panels / kFewestPanels));
    row_tasks = std::max(row_tasks, std::min(CeilDiv(wanted, col_tasks), row_panels / 4));
    // A small product is shared by columns: each thread reads its own weights.
    if (row_tasks * col_tasks < threads) col_tasks = std::min<int64_t>(col_panels, threads);
  }

  ProductBlocks blocks;
  const int64_t rows = CeilDiv(row_panels, row_tasks);
  const int64_t cols = CeilDiv(col_panels, col_tasks);
  blocks.rows = rows * limits.tile_rows;
  blocks.cols = cols * limits.tile_cols;
  blocks.row_tasks = CeilDiv(row_panels, rows);
  blocks.col_tasks = CeilDiv(col_panels, cols);
  const int64_t deep = limits.packed_floats / blocks.rows / kLinearBlockK * kLinearBlockK;
  blocks.depth = std::min(std::max(deep, kLinearBlockK), shape.depth);
  return blocks;
}

}  // namespace segue::kernels::cpu
