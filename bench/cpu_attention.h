// Benchmark of the CPU attention back end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu_isa.h"
#include "segue/status.h"

namespace segue::bench {

// One sequence of one segment; queries, keys and values are slices of one fused projection.
struct AttentionShapeCase {
  int64_t rows;
  int32_t heads;
  int32_t head_dim;
};

// Qwen-Image at 1024 x 1024 with 64 text rows and a sixth of its heads; the emoji model.
std::vector<AttentionShapeCase> DefaultAttentionCases();

struct AttentionOptions {
  std::vector<AttentionShapeCase> cases = DefaultAttentionCases();
  int threads = 2;
  kernels::CpuIsa widest_isa = kernels::CpuIsa::kAvx512;
  int rounds = 3;          // of A B B A
  double sample_s = 0.25;  // a sample's length
};

struct AttentionRow {
  std::string name;     // "4160 rows, 4 heads of 128"
  std::string backend;  // which one ran
  double ours_gflops = 0.0;
  // OpenBLAS computing Q K^T and (scores) V for blocks of 192 queries, without any softmax: the
  // bound of every attention built from library calls. 0 without the peer.
  double peer_gflops = 0.0;
  double ratio = 0.0;    // ours / peer
  double ours_ms = 0.0;  // median of a call
  // Largest difference from the double-precision reference over the first query rows.
  double largest_difference = 0.0;
};

struct AttentionReport {
  std::string peer;  // its name and version, or why there is none
  std::vector<AttentionRow> rows;
};

// Verifies and times every case. 4 rows^2 heads head_dim operations a call.
// Errors: an attention that fails.
Result<AttentionReport> BenchAttention(const AttentionOptions& options);

}  // namespace segue::bench
