// What is known of a product without a GPU: its bit class, the buckets of rows in which algorithms
// are chosen, and the file that keeps the choices.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/span.h"
#include "segue/status.h"

namespace segue::kernels {

// What is done to x W^T + b in float32 before it is rounded.
enum class ProductEpilogue : uint8_t { kNone, kGeluTanh };

// All that the bits of an output row follow from, besides the operands: the number of rows is not
// among it. The sum over k is cut into `k_splits` equal pieces; each is one chain of the tensor
// cores in ascending k, the pieces are added in ascending order in float32, then the bias.
struct ProductForm {
  int64_t n = 0;  // columns of y, a multiple of 8
  int64_t k = 0;  // columns of x, a multiple of 8; of 64 * k_splits where k_splits > 1
  int32_t k_splits = 1;
  bool bias = false;
  bool transposed_weight = false;  // stored [k, n] instead of [n, k]
  ProductEpilogue epilogue = ProductEpilogue::kNone;
  DType y_dtype = DType::kBF16;  // or kF32

  auto operator<=>(const ProductForm&) const = default;

  // "n 3072 k 12288 splits 2 bias"
  std::string ToString() const;
};

struct ProductShape {
  ProductForm form;
  int64_t rows = 0;

  auto operator<=>(const ProductShape&) const = default;
};

// Error (kInvalidArgument) unless the form is one of those above.
Status CheckProductForm(const char* operation, const ProductForm& form);

// The number of pieces to give a weight whose x has few rows nearly always (text). Few rows are as
// fast as the weight is read, if enough CTAs read it: pieces of k keep the chip busy where n alone
// does not. Many rows pay for them in traffic. Measured on an H200, us of one and of two pieces:
//   n 3584 k 18944:  40 rows 45.1, 41.0;  98: 68.3, 47.2;  256: 79.7, 56.5;  1058: 192, 234
//   n 3072 k 12288:  64 rows 27.5, 25.5;  128: 32.3, 28.2;  256: 36.5, 36.4;  1024: 98, 131
// More than two gain 2 us at most, and at k 3072 two gain nothing.
int32_t FewRowSplits(int64_t n, int64_t k);

// The rows that stand for `rows` (at least 1) when an algorithm is chosen: the next multiple of 16
// up to 16, of 32 up to 128, of 64 up to 1024, where texts are and reading the weight is most of
// the time; of 16 up to 16384, since images have few sizes and the best tile follows from the exact
// one (a choice made for 2 % more rows cost up to 3 %, for 8 % more 6 %); 16384 for all above. Any
// bucket's algorithm is right for any number of rows; this is about speed alone.
int64_t ProductRowBucket(int64_t rows);

// The most rows whose pieces of sums fit into the workspace, a multiple of 16; products of more
// rows run piece by piece. 0: not even 16 do.
int64_t ProductRowsAtOnce(const ProductForm& form, int64_t workspace_bytes);

struct ProductChoice {
  std::array<uint64_t, 8> algorithm = {};  // cublasLtMatmulAlgo_t
  int64_t nanoseconds = 0;                 // of one call when it was chosen

  bool operator==(const ProductChoice&) const = default;
};

using ProductChoices = std::map<std::pair<ProductForm, int64_t>, ProductChoice>;  // form, bucket

// The index of the time that wins: the smallest, but an earlier one (better by the library's own
// ranking) within a hundredth of it keeps its place, so that noise alone changes no choice.
// Precondition: at least one.
size_t WinningTime(Span<const double> times);

// Choices as text: a head that names the setting they were made in (GPU, driver, library,
// workspace; one line), a line each, a checksum.
std::string FormatProductChoices(const std::string& setting, const ProductChoices& choices);

// The reverse. Error (kCorrupt): any byte that FormatProductChoices would not have written;
// another setting.
Result<ProductChoices> ParseProductChoices(const std::string& setting, const std::string& text);

// The name of a setting's file: settings do not share one, so that machines that share a directory
// do not overwrite each other's.
std::string ProductChoicesFileName(const std::string& setting);

// A whole file; empty when there is none. Error (kIo) otherwise.
Result<std::string> ReadProductChoices(const std::string& path);

// Replaces the file by one that is complete, or leaves it as it was; makes its directory. Error
// (kIo): what the operating system said.
Status WriteProductChoices(const std::string& path, const std::string& text);

}  // namespace segue::kernels
