#include "kernels/cuda/cublaslt/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace segue::kernels {
namespace {

constexpr char kSoname[] = "libcublasLt.so.13";

struct Library {
  CublasLt functions = {};
  std::string problem;  // empty when it is loaded
};

template <class Function>
bool Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

bool FindAll(void* handle, CublasLt* lt) {
  return Find(handle, "cublasLtCreate", &lt->create) &&
         Find(handle, "cublasLtDestroy", &lt->destroy) &&
         Find(handle, "cublasLtGetVersion", &lt->get_version) &&
         Find(handle, "cublasLtGetStatusString", &lt->get_status_string) &&
         Find(handle, "cublasLtMatmul", &lt->matmul) &&
         Find(handle, "cublasLtMatmulAlgoGetHeuristic", &lt->algo_get_heuristic) &&
         Find(handle, "cublasLtMatmulAlgoCheck", &lt->algo_check) &&
         Find(handle, "cublasLtMatmulAlgoCapGetAttribute", &lt->algo_cap_get_attribute) &&
         Find(handle, "cublasLtMatmulAlgoConfigSetAttribute", &lt->algo_config_set_attribute) &&
         Find(handle, "cublasLtMatmulAlgoConfigGetAttribute", &lt->algo_config_get_attribute) &&
         Find(handle, "cublasLtMatmulDescCreate", &lt->desc_create) &&
         Find(handle, "cublasLtMatmulDescDestroy", &lt->desc_destroy) &&
         Find(handle, "cublasLtMatmulDescSetAttribute", &lt->desc_set_attribute) &&
         Find(handle, "cublasLtMatrixLayoutCreate", &lt->layout_create) &&
         Find(handle, "cublasLtMatrixLayoutDestroy", &lt->layout_destroy) &&
         Find(handle, "cublasLtMatmulPreferenceCreate", &lt->preference_create) &&
         Find(handle, "cublasLtMatmulPreferenceDestroy", &lt->preference_destroy) &&
         Find(handle, "cublasLtMatmulPreferenceSetAttribute", &lt->preference_set_attribute);
}

Library Open() {
  const char* chosen = std::getenv("SEGUE_CUBLASLT");
  const bool by_name = chosen != nullptr && *chosen != '\0';
  const char* path = by_name ? chosen : kSoname;
  const std::string where =
      std::string(by_name ? "SEGUE_CUBLASLT=" : "SEGUE_CUBLASLT is not set; ") + path + ": ";
  Library library;
  // Never closed: the library keeps threads and atexit handlers.
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    library.problem = where + (error == nullptr ? "not found" : error);
  } else if (!FindAll(handle, &library.functions)) {
    library.problem = where + "lacks a function of cuBLASLt";
  }
  return library;
}

}  // namespace

Result<const CublasLt*> LoadCublasLt() {
  static const Library library = Open();
  if (library.problem.empty()) return &library.functions;
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "load cuBLASLt",
               .argument = "",
               .got = library.problem,
               .wanted = "cuBLASLt 13, on the loader's path or named by SEGUE_CUBLASLT"};
}

}  // namespace segue::kernels
