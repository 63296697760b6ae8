// Which rows of a padded batch hold tokens: index, inverse and cu_seqlens from masks or lengths.
//
// Masks may have holes anywhere; rows keep their order. On a GPU nothing leaves device memory and
// nothing waits, so that it can be captured; host and device give the same bytes. The padded batch
// and its row numbers are those of pack.h.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::kernels {

// The rows that one tensor gives each sequence. Without a mask and lengths all of them are valid;
// with both, those that both say.
struct PackIndexRows {
  int64_t rows = 0;
  const void* mask = nullptr;        // [batch, rows] of mask_type: nonzero is valid
  DType mask_type = DType::kU8;      // kU8 (bool), kI32 or kI64
  int64_t mask_stride = 0;           // elements between sequences: a joint mask serves both tensors
  const void* lengths = nullptr;     // [batch] of lengths_type: rows below are valid; in [0, rows]
  DType lengths_type = DType::kI32;  // kI32 or kI64
};

// What PackIndex found wrong with its input on a GPU; the outputs are then safe to use.
enum PackIndexError : int32_t {
  kPackIndexOk = 0,
  kPackIndexLength = 1,    // a length outside [0, rows]: taken as the nearer bound
  kPackIndexCapacity = 2,  // more valid rows than `capacity`: the last ones are dropped
};

// All pointers are memory of the context's device.
struct PackIndexParams {
  PackIndexRows prefix;
  PackIndexRows main;
  int64_t batch = 0;               // batch * (prefix.rows + main.rows) is at most 2^30
  DType index_type = DType::kI32;  // of `index` and `inverse`: kI32 or kI64
  // Outputs; those that are null are not made. T is the number of valid rows.
  void* index = nullptr;    // [capacity]: the padded row of each packed row; -1 from T on
  void* inverse = nullptr;  // [batch * (prefix.rows + main.rows)]: the packed row, or -1
  int32_t* cu_seqlens =
      nullptr;               // [batch + 1]: where sequences begin in packed rows; the last is T
  int32_t* error = nullptr;  // one PackIndexError, written by every call
  int64_t capacity = 0;      // the most rows to pack
  // GPU only: PackIndexScratch values that a call overwrites.
  int32_t* scratch = nullptr;
};

// Padded rows that one CTA numbers.
inline constexpr int32_t kPackIndexChunk = 1024;

// Values of scratch for a batch of so many padded rows.
constexpr int64_t PackIndexScratch(int64_t padded_rows) {
  return (padded_rows + kPackIndexChunk - 1) / kPackIndexChunk;
}

// Errors, before anything is written: types, sizes or null pointers that do not fit; on the CPU
// also what PackIndexError lists, which a GPU reports there; a refused launch.
Status PackIndex(const PackIndexParams& params, const Context& context);

}  // namespace segue::kernels
