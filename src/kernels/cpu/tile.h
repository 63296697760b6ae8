// The inner loops of every product on the CPU: packing into panels, and the register tile.
//
// Included only by files compiled for one instruction set. All functions are templates over it, so
// no two instruction sets share a symbol.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "kernels/cpu/blocks.h"
#include "kernels/math.h"

namespace segue::kernels::cpu {

// Not std::min: these files must not emit functions that others could be linked to.
SEGUE_INLINE constexpr int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// c[r][j] = (add ? c[r][j] : 0) + sum over k of a[k][r] * b[k][j], one chain of fused
// multiply-adds a sum, in ascending k from zero. Unrolled by request: otherwise GCC 12 unrolls too
// late to keep the sums out of memory before and after the loop.
template <class Isa, int kRows, int kVectors>
void MultiplyTile(int64_t depth, const float* a, const float* b, float* c, int64_t c_stride,
                  bool add) {
  using V = typename Isa::V;
  constexpr int kLanes = Isa::kLanes;
  V sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Isa::Zero();
  }
  for (int64_t k = 0; k < depth; ++k) {
    V column[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) column[v] = Isa::Load(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V row = Isa::Set(a[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Isa::Fma(row, column[v], sums[r][v]);
    }
    a += kRows;
    b += kVectors * kLanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      float* at = c + r * c_stride + v * kLanes;
      Isa::Store(at, add ? Isa::Load(at) + sums[r][v] : sums[r][v]);
    }
  }
}

template <class Isa>
constexpr TileLimits TileLimitsOf() {
  return {.tile_rows = Isa::kTileRows,
          .tile_cols = Isa::kTileVectors * Isa::kLanes,
          .packed_floats = Isa::kPackedFloats,
          .most_cols = Isa::kMostCols};
}

using TileFunction = void (*)(int64_t depth, const float* a, const float* b, float* c,
                              int64_t c_stride, bool add);

template <class Isa, int kVectors, int... kIndex>
SEGUE_INLINE TileFunction TileAt(int index, std::integer_sequence<int, kIndex...>) {
  static constexpr TileFunction kTiles[] = {MultiplyTile<Isa, kIndex + 1, kVectors>...};
  return kTiles[index];
}

// The tile of `rows` rows, 1 to kMaxRows.
template <class Isa, int kMaxRows, int kVectors>
SEGUE_INLINE TileFunction TileOf(int rows) {
  return TileAt<Isa, kVectors>(rows - 1, std::make_integer_sequence<int, kMaxRows>{});
}

// Interleaves `count` rows of `depth` floats: out[k * count + r] = rows[r][k]. Whole registers are
// stored, so up to kLanes - 1 floats behind the end of `out` are overwritten: panels must be packed
// in ascending order and the last one needs room.
template <class Isa>
void PackRows(const float* const* rows, int count, int64_t depth, float* out) {
  using V = typename Isa::V;
  constexpr int kLanes = Isa::kLanes;
  for (int64_t k = 0; k < depth; k += kLanes) {
    const int64_t left = depth - k;
    V block[kLanes];
    for (int r = 0; r < kLanes; ++r) {
      if (r >= count) {
        block[r] = Isa::Zero();
      } else {
        block[r] = left >= kLanes ? Isa::Load(rows[r] + k) : Isa::LoadPartial(rows[r] + k, left);
      }
    }
    Isa::Transpose(block);
    for (int i = 0; i < kLanes && i < left; ++i) Isa::Store(out + (k + i) * count, block[i]);
  }
}

// Words of kLanes rows, transposed: one column of 32-bit words (a float, or two neighbouring
// bfloat16) a register. Rows from `count` on read as zeros; `bytes` < 4 * kLanes reads no further.
template <class Isa>
SEGUE_INLINE void LoadColumns(const char* const* rows, int count, int64_t offset, int64_t bytes,
                              typename Isa::V (&block)[Isa::kLanes]) {
  constexpr int kLanes = Isa::kLanes;
  for (int r = 0; r < kLanes; ++r) {
    if (r >= count) {
      block[r] = Isa::Zero();
    } else if (bytes >= 4 * kLanes) {
      block[r] = Isa::LoadBits(rows[r] + offset);
    } else {
      alignas(64) char edge[4 * kLanes] = {};
      std::memcpy(edge, rows[r] + offset, bytes);
      block[r] = Isa::LoadBits(edge);
    }
  }
  Isa::Transpose(block);
}

// kLanes columns of a panel whose rows of k are `stride` floats apart:
// out[k * stride + j] = row j of the weights at k, widened.
template <class Isa>
void PackColumns(DType dtype, const char* const* rows, int count, int64_t depth, int64_t stride,
                 float* out) {
  using V = typename Isa::V;
  constexpr int kLanes = Isa::kLanes;
  V block[kLanes];
  if (dtype == DType::kBF16) {
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      LoadColumns<Isa>(rows, count, 2 * k, 2 * (depth - k), block);
      for (int i = 0; i < kLanes && k + 2 * i < depth; ++i) {
        float* at = out + (k + 2 * i) * stride;
        Isa::Store(at, Isa::WidenLow(block[i]));
        if (k + 2 * i + 1 < depth) Isa::Store(at + stride, Isa::WidenHigh(block[i]));
      }
    }
  } else if (dtype == DType::kF32) {
    for (int64_t k = 0; k < depth; k += kLanes) {
      LoadColumns<Isa>(rows, count, 4 * k, 4 * (depth - k), block);
      for (int i = 0; i < kLanes && k + i < depth; ++i) {
        Isa::Store(out + (k + i) * stride, block[i]);
      }
    }
  } else {
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int64_t bytes = 2 * (depth - k);
      for (int r = 0; r < kLanes; ++r) {
        if (r >= count) {
          block[r] = Isa::Zero();
        } else if (bytes >= 2 * kLanes) {
          block[r] = Isa::LoadF16(rows[r] + 2 * k);
        } else {
          alignas(64) char edge[2 * kLanes] = {};
          std::memcpy(edge, rows[r] + 2 * k, bytes);
          block[r] = Isa::LoadF16(edge);
        }
      }
      Isa::Transpose(block);
      for (int i = 0; i < kLanes && k + i < depth; ++i) {
        Isa::Store(out + (k + i) * stride, block[i]);
      }
    }
  }
}

}  // namespace segue::kernels::cpu
