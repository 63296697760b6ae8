// cuBLASLt loaded at run time.
#pragma once

#include <cublasLt.h>

#include "segue/status.h"

namespace segue::kernels {

// Its functions, by the names of cublasLt.h.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoCapGetAttribute) algo_cap_get_attribute;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) algo_config_set_attribute;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_config_get_attribute;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute;
};

// Loads the library once a process. Error (kUnsupported): where it was looked for, and what the
// dynamic loader said.
Result<const CublasLt*> LoadCublasLt();

}  // namespace segue::kernels
