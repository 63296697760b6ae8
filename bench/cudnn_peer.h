// cuDNN as the peer of attention, on inputs that were concatenated and made contiguous beforehand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/attention_case.h"
#include "bench/attention_check.h"
#include "bench/gpu_measure.h"
#include "kernels/attention_cudnn.h"

namespace segue::bench {

// How the library is given a batch.
enum class CudnnForm {
  kOneByOne,  // a call a sequence, each with a graph of its own lengths
  kBatch,     // one call; sequences are of equal length
  kPadded,    // one call over [sequences, longest], lengths in device memory
  kAllRows,   // one sequence, the rows behind it attended to as well
};

// Forms that fit a case: kBatch where lengths are equal, both others where they are not, kAllRows
// beside kOneByOne where there is a tail.
std::vector<CudnnForm> FormsFor(const AttentionCase& shape);
// ", padded"; empty where a case has one form only.
std::string FormName(CudnnForm form);

class CudnnPeer {
 public:
  // Errors: no library; a shape that it does not take; memory; graphs that take longer than
  // `build_seconds` to build.
  static Result<CudnnPeer> Create(const AttentionCase& shape, CudnnForm form, int threads,
                                  const GpuStream& stream);

  // Runs once and compares samples with float64.
  Status Verify(const std::string& name, int threads, const GpuStream& stream);
  // Outlived by this object.
  GpuContender Attention();

 private:
  // Contiguous: q, o [rows, heads, head_dim]; k, v [rows, kv_heads, head_dim].
  struct Set {
    GpuBuffer q, k, v, o;
  };
  struct Call {
    const kernels::AttentionCudnn* graph = nullptr;
    int64_t row = 0;  // first
  };

  Status BuildGraphs(int threads);
  Status MakeSets(const GpuStream& stream);
  kernels::AttentionCudnnShape ShapeOf(int64_t rows) const;
  Status Enqueue(void* stream, int64_t set) const;

  AttentionCase shape_;
  CudnnForm form_ = CudnnForm::kBatch;
  std::string version_;
  std::vector<int64_t> lengths_;  // of sequences
  int64_t batch_ = 1;             // of a call
  int64_t total_rows_ = 0;        // of a set
  std::vector<std::unique_ptr<kernels::AttentionCudnn>> graphs_;
  std::vector<Call> calls_;
  std::vector<Set> sets_;
  GpuBuffer device_lengths_;
  GpuBuffer workspace_;
};

}  // namespace segue::bench
