// How a product is cut into tasks for the thread pool. It decides speed only: a result's bits
// depend on the order over k alone.
#pragma once

#include <cstdint>

namespace segue::kernels::cpu {

struct ProductShape {
  int64_t rows = 0;   // M
  int64_t cols = 0;   // N
  int64_t depth = 0;  // K
};

// What one instruction set's tiles and caches want.
struct TileLimits {
  int64_t tile_rows = 1;
  int64_t tile_cols = 1;
  int64_t packed_floats = 0;  // of rows of x, packed and kept in the level-2 cache
  int64_t most_cols = 0;      // of a task that keeps its sums between spans of k
};

struct ProductBlocks {
  int64_t rows = 0;   // of a task: a multiple of tile_rows
  int64_t cols = 0;   // of a task: a multiple of tile_cols
  int64_t depth = 0;  // of the rows packed at once: a multiple of kLinearBlockK, or all
  int64_t row_tasks = 0;
  int64_t col_tasks = 0;

  int64_t tasks() const { return row_tasks * col_tasks; }
};

// Precondition: a shape without zeros.
ProductBlocks ChooseBlocks(const ProductShape& shape, const TileLimits& limits, int threads);

}  // namespace segue::kernels::cpu
