// One product as cuBLASLt describes it: an extent with its descriptors, and algorithms for it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt/library.h"
#include "kernels/product_choice.h"
#include "segue/status.h"

namespace segue::kernels::cublaslt {

using Algorithm = cublasLtMatmulAlgo_t;

// A handle of the library for one device and the workspace of its products.
struct Session {
  const CublasLt* lt = nullptr;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

// All that algorithms are valid for. Strides in elements.
struct Extent {
  ProductForm form;
  int64_t rows = 0;
  int64_t x_stride = 0;
  int64_t weight_stride = 0;
  int64_t y_stride = 0;

  auto operator<=>(const Extent&) const = default;
};

// An extent whose operands are contiguous.
Extent Contiguous(const ProductForm& form, int64_t rows);

struct Operands {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  float scale = 1.0f;
};

Error LtError(const Session& session, const char* call, cublasStatus_t status);

// Destroys descriptors.
struct Free {
  const CublasLt* lt = nullptr;
  void operator()(cublasLtMatmulDescOpaque_t* description) const;
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const;
};

class Product {
 public:
  static Result<Product> Create(const Session& session, const Extent& extent);

  const Extent& extent() const { return extent_; }

  // The library's ranking, fastest first by its estimate: of algorithms of one piece, or of any.
  enum class Pieces : bool { kOne, kAny };
  std::vector<Algorithm> Ranking(Pieces pieces) const;

  // The algorithm made to sum the form's pieces, whatever number of pieces it was ranked with;
  // false where it cannot, or not within the workspace.
  bool Adapt(Algorithm* algorithm) const;
  // Whether it runs as it is.
  bool Accepts(const Algorithm& algorithm) const;

  Status Run(const Algorithm& algorithm, const Operands& operands, cudaStream_t stream) const;

 private:
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Free>;

  Product(const Session& session, const Extent& extent) : session_(&session), extent_(extent) {}
  Status Describe();
  Status SetAttribute(cublasLtMatmulDescAttributes_t attribute, const void* value, size_t bytes);
  Result<Layout> MakeLayout(cudaDataType type, int64_t rows, int64_t cols, int64_t stride) const;

  const Session* session_;
  Extent extent_;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Free> operation_;
  Layout weight_;
  Layout x_;
  Layout y_;
};

// Whether it multiplies on tensor cores, in whose order of summation classes are defined.
bool UsesTensorCores(const Session& session, const Algorithm& algorithm);

// The class's reference: the first of the library's ranking for 1024 rows (fewer where the
// workspace holds the sums of fewer) that takes the form. Follows from the form, the library, the
// GPU and the workspace's size. Error (kUnsupported): there is none.
Result<Algorithm> ReferenceAlgorithm(const Session& session, const ProductForm& form);

// "66 tile 24 stages 35 cluster 5 swizzle 0 custom 7 splits 1 scheme 0"
std::string Describe(const Session& session, const Algorithm& algorithm);

}  // namespace segue::kernels::cublaslt
