// Rotary position embedding of query and key heads, in the two forms in use.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// Angles by position: pair k of a head turns by the angle of column k.
struct RopeTable {
  const float* cos = nullptr;  // [positions, head_dim / 2] float32, contiguous
  const float* sin = nullptr;  // [positions, head_dim / 2]
  int64_t positions = 0;
  const int32_t* index = nullptr;  // [M]: the table's row for row m; null: row m itself

  bool present() const { return cos != nullptr; }
  int64_t RowFor(int64_t row) const { return index == nullptr ? row : index[row]; }
};

struct QkNormRopeParams {
  MatrixView x;  // [M, heads * head_dim], in place
  int32_t head_dim = 0;
  WeightView weight;  // [head_dim] of the per-head RMSNorm, or absent: no norm
  float eps = 1e-6f;
  RopeTable rope;  // absent: no rotation
  // Of x / rms, of its product with the weight, and of the rotated pair.
  Rounding rounding = Rounding::kNone;
};

// RMSNorm of each head, then the rotation of adjacent pairs (2k, 2k+1): (a, b) becomes
// (a cos - b sin, a sin + b cos). diffusers: apply_rotary_emb_qwen with use_real=False.
// Errors: shapes or indices that do not fit; no implementation for the device.
Status QkNormRope(const QkNormRopeParams& params, const Context& context);

struct RopeHalfParams {
  MatrixView x;  // [M, heads * head_dim], in place
  int32_t head_dim = 0;
  RopeTable rope;
  // Of cos and sin, of each product, and of the sum, as transformers does.
  Rounding rounding = Rounding::kNone;
};

// The rotation of pairs (k, k + head_dim/2). transformers: apply_rotary_pos_emb.
// Errors: as QkNormRope.
Status RopeHalf(const RopeHalfParams& params, const Context& context);

}  // namespace segue::kernels
