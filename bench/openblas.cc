#include "bench/openblas.h"

#include <dlfcn.h>

#include <cstdlib>

namespace segue::bench {
namespace {

// CBLAS enumerators.
constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

Result<void*> Find(void* library, const char* name) {
  if (void* symbol = dlsym(library, name)) return symbol;
  return Error{.code = ErrorCode::kNotFound,
               .operation = "load OpenBLAS",
               .argument = name,
               .got = "no such function",
               .wanted = "OpenBLAS 0.3 (Debian's libopenblas0)"};
}

}  // namespace

Result<OpenBlas> OpenBlas::Load(int threads, kernels::CpuIsa widest) {
  if (widest == kernels::CpuIsa::kAvx2) {
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  } else {
    unsetenv("OPENBLAS_CORETYPE");
  }
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{.code = ErrorCode::kNotFound,
                 .operation = "load OpenBLAS",
                 .argument = "libopenblas.so.0",
                 .got = dlerror(),
                 .wanted = "OpenBLAS 0.3 (Debian's libopenblas0)"};
  }
  OpenBlas blas;
  SEGUE_ASSIGN_OR_RETURN(void* const sgemm, Find(library, "cblas_sgemm"));
  SEGUE_ASSIGN_OR_RETURN(void* const set_threads, Find(library, "openblas_set_num_threads"));
  SEGUE_ASSIGN_OR_RETURN(void* const config, Find(library, "openblas_get_config"));
  SEGUE_ASSIGN_OR_RETURN(void* const core, Find(library, "openblas_get_corename"));
  blas.sgemm_ = reinterpret_cast<Sgemm>(sgemm);
  reinterpret_cast<void (*)(int)>(set_threads)(threads);
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the first two words.
  const std::string words = reinterpret_cast<char* (*)()>(config)();
  const size_t name_end = words.find(' ');
  const size_t version_end = words.find(' ', name_end + 1);
  blas.name_ = words.substr(0, name_end);
  blas.version_ = words.substr(name_end + 1, version_end - name_end - 1) + " " +
                  reinterpret_cast<char* (*)()>(core)() + ", " + std::to_string(threads) +
                  " threads";
  return blas;
}

void OpenBlas::Multiply(const Shape& shape, Operand a, Operand b, float* c,
                        int64_t c_stride) const {
  sgemm_(kRowMajor, kNoTrans, kNoTrans, static_cast<int>(shape.m), static_cast<int>(shape.n),
         static_cast<int>(shape.k), 1.0f, a.data, static_cast<int>(a.stride), b.data,
         static_cast<int>(b.stride), 0.0f, c, static_cast<int>(c_stride));
}

void OpenBlas::MultiplyTransposed(const Shape& shape, Operand a, Operand b, float* c,
                                  int64_t c_stride) const {
  sgemm_(kRowMajor, kNoTrans, kTrans, static_cast<int>(shape.m), static_cast<int>(shape.n),
         static_cast<int>(shape.k), 1.0f, a.data, static_cast<int>(a.stride), b.data,
         static_cast<int>(b.stride), 0.0f, c, static_cast<int>(c_stride));
}

}  // namespace segue::bench
