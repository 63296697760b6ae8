// How far two files are from one another: what `segue compare` prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

enum class FileKind : uint8_t { kTensors, kPicture };

// One tensor of A beside the tensor of the same name of B, or one picture beside another, whose
// elements are its 8-bit levels, [height, width, 3]. b is the reference of what is relative.
struct TensorDifference {
  std::string name;
  std::string dtype_a;  // empty: the tensor is in B only
  std::string dtype_b;  // empty: in A only
  std::vector<int64_t> shape_a;
  std::vector<int64_t> shape_b;

  // The rest is 0 (or absent) unless both are there, of one shape.
  int64_t elements = 0;
  double max_abs = 0;      // max |a - b|
  double relative_l2 = 0;  // |a - b| / |b|, Euclidean norms; infinite if only b is zero
  // 10 log10(peak^2 / mean (a - b)^2), dB; peak is 255 for pictures, else max |b|. Infinite for
  // equal tensors.
  double psnr = 0;
  // Pictures only: share of pixels whose three channels differ by at most one level (1/255).
  std::optional<double> within_level;
  std::optional<int64_t> first_difference;  // flat row-major index of the first a != b
  int64_t different = 0;                    // elements with a != b
  // Elements where one is finite and the other is not, or that are non-finite and differ. NaN
  // equals NaN. They are in `different` but in no other number.
  int64_t non_finite_differences = 0;

  bool comparable() const { return !dtype_a.empty() && !dtype_b.empty() && shape_a == shape_b; }
};

struct CompareReport {
  FileKind kind = FileKind::kTensors;
  std::vector<TensorDifference> tensors;  // A's order, then those of B alone
};

// Compares two safetensors files (float tensors are widened to float32, integers to double) or two
// PNG files; which they are is read from their first bytes. Errors: an unsound file, a file of
// each kind.
Result<CompareReport> CompareFiles(const std::string& path_a, const std::string& path_b);

// What still counts as equal. Every limit that is present must hold; with none, elements must be
// equal.
struct CompareLimits {
  std::optional<double> max_abs;  // pictures: levels
  std::optional<double> relative_l2;
  std::optional<double> within_level;  // the least share; pictures only
};

// False for tensors that are not comparable or have non-finite differences.
bool IsWithin(const TensorDifference& difference, const CompareLimits& limits);

}  // namespace segue
