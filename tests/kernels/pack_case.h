// A padded batch with a mask, its packed form by concatenation and gathering, and canaries around
// all that is written. The tests of packing on the CPU and on a GPU share it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/pack.h"
#include "kernels/pack_index.h"

namespace segue::kernels {

enum class MaskPattern {
  kFull,
  kEmpty,
  kRight,        // padding on the right: valid rows first
  kLeft,         // padding on the left
  kGap,          // one hole in the middle
  kAlternating,  // every other row
  kLast,         // the last row of each sequence alone
  kRandom,
};
inline constexpr MaskPattern kMaskPatterns[] = {
    MaskPattern::kFull, MaskPattern::kEmpty,       MaskPattern::kRight, MaskPattern::kLeft,
    MaskPattern::kGap,  MaskPattern::kAlternating, MaskPattern::kLast,  MaskPattern::kRandom};

// [batch, rows], 1 for valid.
std::vector<uint8_t> MakeMask(MaskPattern pattern, int64_t batch, int64_t rows, uint32_t seed);

struct PackOptions {
  int64_t batch = 1;
  int64_t prefix_rows = 0;
  int64_t main_rows = 0;
  std::vector<int64_t> widths = {16, 8, 8};  // row elements of each tensor
  DType element_type = DType::kBF16;
  DType index_type = DType::kI32;
  int64_t row_gap = 0;      // elements between padded rows
  int64_t packed_gap = 0;   // elements between packed rows
  int64_t batch_gap = 0;    // elements between sequences
  int64_t offset = 0;       // elements before the first row
  int64_t spare_rows = 0;   // rows of the packed tensors beyond those needed
  bool pass_count = false;  // through packed_count; else packed_rows is exact (no spare rows)
  uint32_t seed = 1;
};

using Bytes = std::vector<uint8_t>;

class PackCase {
 public:
  PackCase(const PackOptions& options, const std::vector<uint8_t>& mask);

  // The memory a call works on, in order: for each tensor prefix, main, packed; then index,
  // inverse, cu_seqlens. As before PackRows: packed rows are canaries.
  std::vector<Bytes> BeforePack() const;
  std::vector<Bytes> AfterPack() const;
  // As before ScatterRows: padded rows are canaries, packed rows those of AfterPack.
  std::vector<Bytes> BeforeScatter() const;
  // Rows as they were where valid, zeros elsewhere.
  std::vector<Bytes> AfterScatter() const;

  // Parameters of a call on memory at these addresses.
  PackParams Params(const std::vector<void*>& memory) const;
  std::string Describe() const;
  int64_t count() const { return static_cast<int64_t>(index_.size()); }
  const PackOptions& options() const { return options_; }

  // What PackIndex should give, by definition: padded rows of packed rows and the reverse.
  const std::vector<int64_t>& index() const { return index_; }
  const std::vector<int64_t>& inverse() const { return inverse_; }
  const std::vector<int32_t>& cu_seqlens() const { return cu_seqlens_; }

 private:
  int64_t RowBytes(size_t tensor) const;
  Bytes Packed(size_t tensor, bool filled) const;
  Bytes Padded(size_t tensor, bool prefix, bool scattered) const;

  PackOptions options_;
  int64_t packed_rows_ = 0;
  std::vector<int64_t> index_;
  std::vector<int64_t> inverse_;
  std::vector<int32_t> cu_seqlens_;
  std::vector<std::vector<Bytes>> rows_;  // [tensor][padded row], as if concatenated
};

// The first difference of `got` to `want`; empty when there is none.
std::string FirstDifference(const std::vector<Bytes>& got, const std::vector<Bytes>& want);

// Values as an array of index_type.
Bytes IndexBytes(const std::vector<int64_t>& values, DType index_type);

std::vector<void*> Addresses(std::vector<Bytes>& memory);

}  // namespace segue::kernels
