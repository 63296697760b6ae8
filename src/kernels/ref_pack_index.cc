#include <string>

#include "kernels/check.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

bool IsValid(const PackIndexRows& rows, int64_t sequence, int64_t row) {
  if (rows.lengths != nullptr && row >= IndexAt(rows.lengths, rows.lengths_type, sequence)) {
    return false;
  }
  if (rows.mask == nullptr) return true;
  const int64_t at = sequence * rows.mask_stride + row;
  return rows.mask_type == DType::kU8 ? static_cast<const uint8_t*>(rows.mask)[at] != 0
                                      : IndexAt(rows.mask, rows.mask_type, at) != 0;
}

// Row `row` of a sequence, prefix and main numbered through.
bool IsValidInSequence(const PackIndexParams& params, int64_t sequence, int64_t row) {
  return row < params.prefix.rows ? IsValid(params.prefix, sequence, row)
                                  : IsValid(params.main, sequence, row - params.prefix.rows);
}

void Store(void* data, DType type, int64_t i, int64_t value) {
  if (data == nullptr) return;
  if (type == DType::kI64) {
    static_cast<int64_t*>(data)[i] = value;
  } else {
    static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
  }
}

}  // namespace

Status RefPackIndex(const PackIndexParams& params, const Context&) {
  const int64_t sequence_rows = params.prefix.rows + params.main.rows;
  int64_t total = 0;
  for (int64_t sequence = 0; sequence < params.batch; ++sequence) {
    for (int64_t row = 0; row < sequence_rows; ++row) {
      if (IsValidInSequence(params, sequence, row)) ++total;
    }
  }
  if (total > params.capacity) {
    return ArgumentError("pack index", "capacity", std::to_string(params.capacity),
                         "at least " + std::to_string(total) + ", the valid rows");
  }
  int64_t packed = 0;
  for (int64_t sequence = 0; sequence < params.batch; ++sequence) {
    if (params.cu_seqlens != nullptr) params.cu_seqlens[sequence] = static_cast<int32_t>(packed);
    for (int64_t row = 0; row < sequence_rows; ++row) {
      const int64_t padded = sequence * sequence_rows + row;
      const bool valid = IsValidInSequence(params, sequence, row);
      if (valid) Store(params.index, params.index_type, packed, padded);
      Store(params.inverse, params.index_type, padded, valid ? packed : -1);
      if (valid) ++packed;
    }
  }
  if (params.cu_seqlens != nullptr) params.cu_seqlens[params.batch] = static_cast<int32_t>(packed);
  for (int64_t i = packed; i < params.capacity; ++i) Store(params.index, params.index_type, i, -1);
  if (params.error != nullptr) *params.error = kPackIndexOk;
  return {};
}

}  // namespace segue::kernels
