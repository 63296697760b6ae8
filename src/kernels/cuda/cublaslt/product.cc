#include "kernels/cuda/cublaslt/product.h"

#include <algorithm>
#include <utility>

namespace segue::kernels::cublaslt {
namespace {

// More than it ever returned for a product of ours (8), so that nothing is cut off.
constexpr int kMostRanked = 24;

class Preference {
 public:
  explicit Preference(const CublasLt& lt) : lt_(lt) {
    if (lt_.preference_create(&preference_) != CUBLAS_STATUS_SUCCESS) preference_ = nullptr;
  }
  ~Preference() {
    if (preference_ != nullptr) lt_.preference_destroy(preference_);
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <typename T>
  bool Set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    return preference_ != nullptr &&
           lt_.preference_set_attribute(preference_, attribute, &value, sizeof value) ==
               CUBLAS_STATUS_SUCCESS;
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  const CublasLt& lt_;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

uint32_t Epilogue(const ProductForm& form) {
  if (form.epilogue == ProductEpilogue::kGeluTanh) {
    return form.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }
  return form.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

int64_t Config(const Session& session, const Algorithm& algorithm,
               cublasLtMatmulAlgoConfigAttributes_t attribute) {
  const bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                      attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  uint16_t small = 0;
  uint32_t value = 0;
  size_t written = 0;
  const cublasStatus_t status = session.lt->algo_config_get_attribute(
      &algorithm, attribute, narrow ? static_cast<void*>(&small) : &value,
      narrow ? sizeof small : sizeof value, &written);
  if (status != CUBLAS_STATUS_SUCCESS) return -1;
  return narrow ? small : value;
}

}  // namespace

Extent Contiguous(const ProductForm& form, int64_t rows) {
  return {.form = form,
          .rows = rows,
          .x_stride = form.k,
          .weight_stride = form.transposed_weight ? form.n : form.k,
          .y_stride = form.n};
}

Error LtError(const Session& session, const char* call, cublasStatus_t status) {
  return {.code = status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::kOutOfMemory
                                                       : ErrorCode::kUnsupported,
          .operation = "product by cuBLASLt",
          .argument = call,
          .got = session.lt->get_status_string(status),
          .wanted = "a product that the library takes"};
}

void Free::operator()(cublasLtMatmulDescOpaque_t* description) const {
  lt->desc_destroy(description);
}
void Free::operator()(cublasLtMatrixLayoutOpaque_t* layout) const { lt->layout_destroy(layout); }

Status Product::SetAttribute(cublasLtMatmulDescAttributes_t attribute, const void* value,
                             size_t bytes) {
  const cublasStatus_t status =
      session_->lt->desc_set_attribute(operation_.get(), attribute, value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return LtError(*session_, "cublasLtMatmulDescSetAttribute", status);
}

Result<Product::Layout> Product::MakeLayout(cudaDataType type, int64_t rows, int64_t cols,
                                            int64_t stride) const {
  cublasLtMatrixLayout_t layout = nullptr;
  const cublasStatus_t status = session_->lt->layout_create(
      &layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), stride);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return LtError(*session_, "cublasLtMatrixLayoutCreate", status);
  }
  return Layout(layout, Free{session_->lt});
}

// The library's matrices are column-major, so it computes y^T [n, M] = W x^T: our rows are its
// columns.
Status Product::Describe() {
  const ProductForm& form = extent_.form;
  cublasLtMatmulDesc_t operation = nullptr;
  const cublasStatus_t status =
      session_->lt->desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return LtError(*session_, "cublasLtMatmulDescCreate", status);
  }
  operation_ = {operation, Free{session_->lt}};
  const cublasOperation_t transpose = form.transposed_weight ? CUBLAS_OP_N : CUBLAS_OP_T;
  SEGUE_RETURN_IF_ERROR(SetAttribute(CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
  const uint32_t epilogue = Epilogue(form);
  SEGUE_RETURN_IF_ERROR(SetAttribute(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  if (form.bias) {
    // Of the operands, not of y.
    const int32_t type = CUDA_R_16BF;
    SEGUE_RETURN_IF_ERROR(SetAttribute(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
  }
  const int64_t weight_rows = form.transposed_weight ? form.n : form.k;
  const int64_t weight_cols = form.transposed_weight ? form.k : form.n;
  SEGUE_ASSIGN_OR_RETURN(weight_,
                         MakeLayout(CUDA_R_16BF, weight_rows, weight_cols, extent_.weight_stride));
  SEGUE_ASSIGN_OR_RETURN(x_, MakeLayout(CUDA_R_16BF, form.k, extent_.rows, extent_.x_stride));
  const cudaDataType y_type = form.y_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
  SEGUE_ASSIGN_OR_RETURN(y_, MakeLayout(y_type, form.n, extent_.rows, extent_.y_stride));
  return {};
}

Result<Product> Product::Create(const Session& session, const Extent& extent) {
  Product product(session, extent);
  SEGUE_RETURN_IF_ERROR(product.Describe());
  return product;
}

std::vector<Algorithm> Product::Ranking(Pieces pieces) const {
  Preference preference(*session_->lt);
  const uint32_t schemes =
      pieces == Pieces::kOne ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_MASK;
  bool set = preference.Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes) &&
             preference.Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, session_->workspace_bytes);
  // What ProductParams promises; the library would assume 256.
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set = set && preference.Set(operand, uint32_t{16});
  }
  cublasLtMatmulHeuristicResult_t results[kMostRanked];
  int count = 0;
  if (!set || session_->lt->algo_get_heuristic(
                  session_->handle, operation_.get(), weight_.get(), x_.get(), y_.get(), y_.get(),
                  preference.get(), kMostRanked, results, &count) != CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  std::vector<Algorithm> ranking;
  for (int i = 0; i < count; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) ranking.push_back(results[i].algo);
  }
  return ranking;
}

bool Product::Accepts(const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result = {};
  return session_->lt->algo_check(session_->handle, operation_.get(), weight_.get(), x_.get(),
                                  y_.get(), y_.get(), &algorithm,
                                  &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= session_->workspace_bytes;
}

bool Product::Adapt(Algorithm* algorithm) const {
  const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, uint32_t value) {
    return session_->lt->algo_config_set_attribute(algorithm, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  // Sums in float32 in the workspace, added in a separate step: the one scheme whose order of
  // additions does not depend on who is done first.
  const bool several = extent_.form.k_splits > 1;
  return set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, static_cast<uint32_t>(extent_.form.k_splits)) &&
         set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
             several ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE) &&
         Accepts(*algorithm);
}

Status Product::Run(const Algorithm& algorithm, const Operands& operands,
                    cudaStream_t stream) const {
  const CublasLt& lt = *session_->lt;
  if (extent_.form.bias) {
    const cublasStatus_t status = lt.desc_set_attribute(
        operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias, sizeof operands.bias);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return LtError(*session_, "cublasLtMatmulDescSetAttribute", status);
    }
  }
  const float zero = 0.0f;
  const cublasStatus_t status =
      lt.matmul(session_->handle, operation_.get(), &operands.scale, operands.weight, weight_.get(),
                operands.x, x_.get(), &zero, operands.y, y_.get(), operands.y, y_.get(), &algorithm,
                session_->workspace, session_->workspace_bytes, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return LtError(*session_, "cublasLtMatmul", status);
}

bool UsesTensorCores(const Session& session, const Algorithm& algorithm) {
  uint64_t flags = 0;
  size_t written = 0;
  const cublasStatus_t status = session.lt->algo_cap_get_attribute(
      &algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags, &written);
  return status == CUBLAS_STATUS_SUCCESS && (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA) != 0;
}

Result<Algorithm> ReferenceAlgorithm(const Session& session, const ProductForm& form) {
  const int64_t rows = std::min<int64_t>(
      1024, ProductRowsAtOnce(form, static_cast<int64_t>(session.workspace_bytes)));
  const auto error = [&](std::string got, std::string wanted) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "product by cuBLASLt",
                 .argument = form.ToString(),
                 .got = std::move(got),
                 .wanted = std::move(wanted)};
  };
  if (rows == 0) {
    return error("a workspace of " + std::to_string(session.workspace_bytes) + " bytes",
                 "one that holds the sums of 16 rows");
  }
  SEGUE_ASSIGN_OR_RETURN(const Product product, Product::Create(session, Contiguous(form, rows)));
  for (Algorithm algorithm : product.Ranking(Product::Pieces::kOne)) {
    if (UsesTensorCores(session, algorithm) && product.Adapt(&algorithm)) return algorithm;
  }
  return error("no algorithm of the library", "a product on tensor cores");
}

std::string Describe(const Session& session, const Algorithm& algorithm) {
  std::string text = std::to_string(Config(session, algorithm, CUBLASLT_ALGO_CONFIG_ID));
  const std::pair<const char*, cublasLtMatmulAlgoConfigAttributes_t> attributes[] = {
      {" tile ", CUBLASLT_ALGO_CONFIG_TILE_ID},
      {" stages ", CUBLASLT_ALGO_CONFIG_STAGES_ID},
      {" cluster ", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID},
      {" swizzle ", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
      {" custom ", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION},
      {" splits ", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
      {" scheme ", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME}};
  for (const auto& [name, attribute] : attributes) {
    text += name + std::to_string(Config(session, algorithm, attribute));
  }
  return text;
}

}  // namespace segue::kernels::cublaslt
