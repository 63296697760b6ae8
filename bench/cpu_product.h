// Benchmark of the packed product against OpenBLAS' sgemm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cpu_isa.h"
#include "segue/status.h"

namespace segue::bench {

struct ProductShapeCase {
  int64_t m, n, k;
  DType weights = DType::kBF16;  // the peer always gets float32
};

// Qwen-Image's linear layers at 1024 x 1024 pixels (attention, MLP up, MLP down), a text stream of
// 96 rows, and the emoji model's layers.
std::vector<ProductShapeCase> DefaultProductCases();

struct ProductOptions {
  std::vector<ProductShapeCase> cases = DefaultProductCases();
  int threads = 2;
  kernels::CpuIsa widest_isa = kernels::CpuIsa::kAvx512;  // kAvx2 holds the peer to AVX2 as well
  int rounds = 3;                                         // of A B B A
  double sample_s = 0.25;                                 // a sample's length
};

struct ProductRow {
  std::string name;    // "1024 x 3072 x 3072 BF16" (M x N x K)
  std::string kernel;  // which implementation ran, e.g. "avx512"
  double ours_gflops = 0.0;
  double peer_gflops = 0.0;  // 0 without the peer
  double ratio = 0.0;        // ours / peer
  double ours_ms = 0.0;      // median of a call
  // Largest difference between the two results over the largest result; both are float32 sums.
  double relative_difference = 0.0;
};

struct ProductReport {
  std::string peer;  // its name and version, or why there is none
  std::vector<ProductRow> rows;
};

// Verifies and times every case. 2 M N K operations a call. Errors: a product that fails.
Result<ProductReport> BenchProducts(const ProductOptions& options);

}  // namespace segue::bench
