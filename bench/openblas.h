// OpenBLAS as the peer of the product benchmarks: loaded at run time, never linked.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu_isa.h"
#include "segue/status.h"

namespace segue::bench {

class OpenBlas {
 public:
  // Loads libopenblas.so.0 of the system and sets its threads. It chooses its kernels once a
  // process, by the processor or, for kAvx2, as on a Haswell.
  // Errors: the library or one of its functions is missing.
  static Result<OpenBlas> Load(int threads, kernels::CpuIsa widest);

  // "OpenBLAS"
  const std::string& name() const { return name_; }
  // "0.3.21 SkylakeX, 2 threads"
  const std::string& version() const { return version_; }

  // c = a b, or a b^T: row-major, leading dimensions in elements.
  struct Operand {
    const float* data;
    int64_t stride;
  };
  struct Shape {
    int64_t m, n, k;
  };
  void Multiply(const Shape& shape, Operand a, Operand b, float* c, int64_t c_stride) const;
  void MultiplyTransposed(const Shape& shape, Operand a, Operand b, float* c,
                          int64_t c_stride) const;

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);

  Sgemm sgemm_ = nullptr;
  std::string name_;
  std::string version_;
};

}  // namespace segue::bench
