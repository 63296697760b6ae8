#include "kernels/product_library.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "device/gpu.h"
#include "kernels/check.h"
#include "kernels/cuda/cublaslt/chooser.h"
#include "kernels/cuda/cublaslt/product.h"

namespace segue::kernels {
namespace {

using cublaslt::Algorithm;
using cublaslt::Chooser;
using cublaslt::Extent;
using cublaslt::Operands;
using cublaslt::Product;
using cublaslt::Session;

constexpr char kOp[] = "product";
constexpr char kWarm[] = "choose products";

// More extents than an engine's shape classes have; beyond, descriptors are made anew.
constexpr size_t kMostPlans = 4096;

Status CheckCuda(const char* call, cudaError_t status) {
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "create product library",
               .argument = call,
               .got = cudaGetErrorString(status),
               .wanted = "a CUDA driver and a device"};
}

// The library loads code on first use, which a capture elsewhere in the process would otherwise
// make an error.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// What a choice may depend on besides the product. The module's version tells drivers apart that
// support the same CUDA version.
Result<std::string> SettingText(int device, const Session& session) {
  cudaDeviceProp properties;
  SEGUE_RETURN_IF_ERROR(
      CheckCuda("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device)));
  int driver = 0;
  SEGUE_RETURN_IF_ERROR(CheckCuda("cudaDriverGetVersion", cudaDriverGetVersion(&driver)));
  std::string module;
  std::getline(std::ifstream("/sys/module/nvidia/version"), module);
  return std::string(properties.name) + " with " + std::to_string(properties.multiProcessorCount) +
         " SMs, driver " + std::to_string(driver) + " " + module + ", cuBLASLt " +
         std::to_string(session.lt->get_version()) + ", workspace " +
         std::to_string(session.workspace_bytes);
}

Status CheckOperand(const char* argument, const void* data, int64_t stride) {
  if (data == nullptr) return ArgumentError(kOp, argument, "null", "device memory");
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) {
    return ArgumentError(kOp, argument, "an address that is no multiple of 16", "one that is");
  }
  if (stride % 8 == 0) return {};
  return ArgumentError(kOp, argument, "rows " + std::to_string(stride) + " elements apart",
                       "a multiple of 8");
}

Status CheckView(const char* argument, const MatrixView& view, int64_t rows, DType dtype) {
  if (view.rows == rows && view.dtype == dtype && view.cols >= 0 &&
      (view.stride >= view.cols || rows <= 1)) {
    return CheckOperand(argument, view.data, rows <= 1 ? 0 : view.stride);
  }
  return ArgumentError(kOp, argument,
                       DTypeName(view.dtype) + (" " + std::to_string(view.rows)) + " rows of " +
                           std::to_string(view.cols) + ", " + std::to_string(view.stride) +
                           " apart",
                       DTypeName(dtype) + (" " + std::to_string(rows)) + " rows");
}

// Elements from one stored row of the weight to the next.
int64_t WeightStride(const ProductParams& params) {
  const int64_t cols = params.transposed_weight ? params.y.cols : params.x.cols;
  return params.weight_stride == 0 ? cols : params.weight_stride;
}

Status CheckWeights(const ProductParams& params) {
  const Shape wanted = params.transposed_weight ? Shape{params.x.cols, params.y.cols}
                                                : Shape{params.y.cols, params.x.cols};
  const WeightView& weight = params.weight;
  if (weight.dtype != DType::kBF16 || !(weight.shape == wanted)) {
    return ArgumentError(kOp, "weight", DTypeName(weight.dtype) + (" " + weight.shape.ToString()),
                         "BF16 " + wanted.ToString());
  }
  const int64_t stride = WeightStride(params);
  if (stride < wanted[1]) {
    return ArgumentError(kOp, "weight_stride", std::to_string(stride),
                         "at least " + std::to_string(wanted[1]));
  }
  SEGUE_RETURN_IF_ERROR(CheckOperand("weight", weight.data, stride));
  if (!params.bias.present()) return {};
  if (params.bias.dtype != DType::kBF16 || params.bias.shape.NumElements() != params.y.cols) {
    return ArgumentError(kOp, "bias",
                         DTypeName(params.bias.dtype) + (" " + params.bias.shape.ToString()),
                         "BF16 [" + std::to_string(params.y.cols) + "]");
  }
  return CheckOperand("bias", params.bias.data, 0);
}

Status CheckParams(const ProductParams& params, const ProductForm& form) {
  SEGUE_RETURN_IF_ERROR(CheckProductForm(kOp, form));
  if (params.x.rows < 0) {
    return ArgumentError(kOp, "x", std::to_string(params.x.rows) + " rows", "at least 0");
  }
  SEGUE_RETURN_IF_ERROR(CheckWeights(params));
  if (params.x.rows == 0 && params.y.rows == 0) return {};
  SEGUE_RETURN_IF_ERROR(CheckView("x", params.x, params.x.rows, DType::kBF16));
  return CheckView("y", params.y, params.x.rows, form.y_dtype);
}

ProductForm FormOf(const ProductParams& params) {
  return {.n = params.y.cols,
          .k = params.x.cols,
          .k_splits = params.k_splits,
          .bias = params.bias.present(),
          .transposed_weight = params.transposed_weight,
          .epilogue = params.epilogue,
          .y_dtype = params.y.dtype};
}

}  // namespace

class ProductLibrary::Impl {
 public:
  Impl(const CublasLt& lt, const Settings& settings)
      : memory_(settings.memory),
        hot_seconds_(settings.hot_seconds),
        session_{.lt = &lt,
                 .workspace = settings.workspace,
                 .workspace_bytes = static_cast<size_t>(settings.workspace_bytes)} {}
  ~Impl() {
    plans_.clear();
    if (session_.handle != nullptr) session_.lt->destroy(session_.handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Open(const std::string& cache_directory);
  Status Multiply(const ProductParams& params, const Stream& stream);
  Status Supports(const ProductForm& form);
  Status Warm(Span<const ProductShape> shapes, const Stream& stream, DeviceMemory* scratch);
  Result<int64_t> ScratchBytes(Span<const ProductShape> shapes) const;
  Result<bool> PackedEqualsParts(const ProductForm& form, Span<const int64_t> part_n,
                                 const Stream& stream);
  std::vector<Choice> Choices() const;

  const std::string& cache_problem() const { return cache_problem_; }
  const std::string& cache_path() const { return cache_path_; }
  int64_t version() const { return static_cast<int64_t>(session_.lt->get_version()); }

 private:
  using Key = std::pair<ProductForm, int64_t>;  // form, bucket
  struct Chosen {
    Algorithm algorithm;
    Choice report;
  };
  struct Plan {
    Product product;
    Algorithm algorithm;
  };

  int64_t RowsAtOnce(const ProductForm& form) const {
    return ProductRowsAtOnce(form, static_cast<int64_t>(session_.workspace_bytes));
  }
  Status CheckReady(const char* operation, const Stream& stream) const;
  Status ReadyToWait(const Stream& stream, const DeviceMemory* scratch) const;
  Result<Algorithm> Reference(const ProductForm& form);
  Result<const Plan*> PlanFor(const Extent& extent);
  Result<std::vector<ProductShape>> NotChosen(Span<const ProductShape> shapes) const;
  Status ChooseOne(const ProductShape& work, Chooser* chooser);
  void Keep(const Key& key, const Algorithm& algorithm, Choice report);
  void ReadCache(const std::string& directory);
  void WriteCache();

  DeviceMemory* memory_;
  double hot_seconds_;
  Session session_;
  int device_ = 0;
  std::string setting_;
  std::string cache_path_;
  std::string cache_problem_;
  ProductChoices kept_;  // as in the file: trusted after a comparison only
  std::map<ProductForm, Algorithm> references_;
  std::map<Key, Chosen> chosen_;
  std::map<Extent, Plan> plans_;
};

Status ProductLibrary::Impl::Open(const std::string& cache_directory) {
  SEGUE_RETURN_IF_ERROR(CheckCuda("cudaGetDevice", cudaGetDevice(&device_)));
  // Makes the device's context where there is none yet; the library does not.
  SEGUE_RETURN_IF_ERROR(CheckCuda("cudaFree", cudaFree(nullptr)));
  const cublasStatus_t status = session_.lt->create(&session_.handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    session_.handle = nullptr;
    return cublaslt::LtError(session_, "cublasLtCreate", status);
  }
  SEGUE_ASSIGN_OR_RETURN(setting_, SettingText(device_, session_));
  if (!cache_directory.empty()) ReadCache(cache_directory);
  return {};
}

void ProductLibrary::Impl::ReadCache(const std::string& directory) {
  cache_path_ = directory + "/" + ProductChoicesFileName(setting_);
  const Result<std::string> text = ReadProductChoices(cache_path_);
  if (!text.ok()) {
    cache_problem_ = text.error().Message();
    return;
  }
  if (text->empty()) return;
  Result<ProductChoices> choices = ParseProductChoices(setting_, *text);
  if (choices.ok()) {
    kept_ = *std::move(choices);
  } else {
    cache_problem_ = cache_path_ + ": " + choices.error().Message();
  }
}

void ProductLibrary::Impl::WriteCache() {
  if (cache_path_.empty()) return;
  const Status written = WriteProductChoices(cache_path_, FormatProductChoices(setting_, kept_));
  cache_problem_ = written.ok() ? "" : written.error().Message();
}

Status ProductLibrary::Impl::CheckReady(const char* operation, const Stream& stream) const {
  if (stream.device() != DeviceKind::kCuda) {
    return ArgumentError(operation, "stream", "one of the CPU", "one of a GPU");
  }
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess && device == device_) return {};
  return ArgumentError(operation, "current device", std::to_string(device),
                       std::to_string(device_) + ", where the library was made");
}

Result<Algorithm> ProductLibrary::Impl::Reference(const ProductForm& form) {
  const auto known = references_.find(form);
  if (known != references_.end()) return known->second;
  SEGUE_ASSIGN_OR_RETURN(const Algorithm algorithm, ReferenceAlgorithm(session_, form));
  references_.emplace(form, algorithm);
  return algorithm;
}

Result<const ProductLibrary::Impl::Plan*> ProductLibrary::Impl::PlanFor(const Extent& extent) {
  const auto known = plans_.find(extent);
  if (known != plans_.end()) return &known->second;
  SEGUE_ASSIGN_OR_RETURN(Product product, Product::Create(session_, extent));
  SEGUE_ASSIGN_OR_RETURN(Algorithm algorithm, Reference(extent.form));
  const auto chosen = chosen_.lower_bound({extent.form, ProductRowBucket(extent.rows)});
  const bool found = chosen != chosen_.end() && chosen->first.first == extent.form;
  if (found && product.Accepts(chosen->second.algorithm)) {
    algorithm = chosen->second.algorithm;
  } else if (!product.Accepts(algorithm)) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = kOp,
                 .argument = extent.form.ToString() + ", " + std::to_string(extent.rows) + " rows",
                 .got = "the class's reference refuses it",
                 .wanted = "rows and strides that it takes"};
  }
  if (plans_.size() >= kMostPlans) plans_.clear();
  return &plans_.emplace(extent, Plan{std::move(product), algorithm}).first->second;
}

Status ProductLibrary::Impl::Multiply(const ProductParams& params, const Stream& stream) {
  const ProductForm form = FormOf(params);
  SEGUE_RETURN_IF_ERROR(CheckParams(params, form));
  SEGUE_RETURN_IF_ERROR(CheckReady(kOp, stream));
  const int64_t rows = params.x.rows;
  const int64_t at_once = std::max<int64_t>(RowsAtOnce(form), 16);  // too few is PlanFor's error
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    // One row has no next one; its stride may be anything.
    const auto stride = [&](const MatrixView& view) { return rows > 1 ? view.stride : view.cols; };
    SEGUE_ASSIGN_OR_RETURN(const Plan* plan, PlanFor({.form = form,
                                                      .rows = count,
                                                      .x_stride = stride(params.x),
                                                      .weight_stride = WeightStride(params),
                                                      .y_stride = stride(params.y)}));
    const auto row_bytes = [&](const MatrixView& view) {
      return row * view.stride * static_cast<int64_t>(SizeOf(view.dtype));
    };
    const Operands operands{.x = static_cast<const char*>(params.x.data) + row_bytes(params.x),
                            .weight = params.weight.data,
                            .bias = params.bias.data,
                            .y = static_cast<char*>(params.y.data) + row_bytes(params.y),
                            .scale = params.scale};
    SEGUE_RETURN_IF_ERROR(plan->product.Run(plan->algorithm, operands,
                                            static_cast<cudaStream_t>(stream.cuda_stream())));
  }
  return {};
}

Status ProductLibrary::Impl::Supports(const ProductForm& form) {
  SEGUE_RETURN_IF_ERROR(CheckProductForm(kOp, form));
  SEGUE_RETURN_IF_ERROR(Reference(form));
  return {};
}

// For operations that allocate and wait: refuses captures, and lets go of the workspace what is
// enqueued there.
Status ProductLibrary::Impl::ReadyToWait(const Stream& stream, const DeviceMemory* scratch) const {
  SEGUE_RETURN_IF_ERROR(CheckReady(kWarm, stream));
  SEGUE_ASSIGN_OR_RETURN(const bool capturing, IsCapturing(stream.cuda_stream()));
  if (capturing) {
    return ArgumentError(kWarm, "stream", "one that is capturing", "a call before the capture");
  }
  if (scratch == nullptr) {
    return ArgumentError(kWarm, "memory", "null", "memory to take scratch from");
  }
  return CheckCuda("cudaStreamSynchronize",
                   cudaStreamSynchronize(static_cast<cudaStream_t>(stream.cuda_stream())));
}

Result<std::vector<ProductShape>> ProductLibrary::Impl::NotChosen(
    Span<const ProductShape> shapes) const {
  for (const ProductShape& shape : shapes) {
    SEGUE_RETURN_IF_ERROR(CheckProductForm(kWarm, shape.form));
  }
  std::vector<ProductShape> buckets =
      ProductBuckets(shapes, static_cast<int64_t>(session_.workspace_bytes));
  std::erase_if(buckets, [this](const ProductShape& bucket) {
    return chosen_.contains({bucket.form, bucket.rows});
  });
  return buckets;
}

Result<int64_t> ProductLibrary::Impl::ScratchBytes(Span<const ProductShape> shapes) const {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<ProductShape> work, NotChosen(shapes));
  return ProductScratchBytes(work);
}

void ProductLibrary::Impl::Keep(const Key& key, const Algorithm& algorithm, Choice report) {
  report.form = key.first;
  report.rows = key.second;
  report.algorithm = cublaslt::Describe(session_, algorithm);
  chosen_.insert_or_assign(key, Chosen{algorithm, std::move(report)});
}

Status ProductLibrary::Impl::ChooseOne(const ProductShape& work, Chooser* chooser) {
  static_assert(sizeof(Algorithm) == sizeof(ProductChoice::algorithm));
  const Key key{work.form, work.rows};
  SEGUE_ASSIGN_OR_RETURN(const Algorithm reference, Reference(work.form));
  const int64_t rows = std::min(work.rows, RowsAtOnce(work.form));
  SEGUE_RETURN_IF_ERROR(chooser->Begin(work.form, rows, reference));
  const auto kept = kept_.find(key);
  if (kept != kept_.end()) {
    Algorithm algorithm;
    std::memcpy(&algorithm, kept->second.algorithm.data(), sizeof algorithm);
    SEGUE_ASSIGN_OR_RETURN(const bool same, chooser->Equals(algorithm));
    if (same) {
      Keep(key, algorithm,
           {.microseconds = static_cast<double>(kept->second.nanoseconds) * 1e-3, .kept = true});
      return {};
    }
  }
  SEGUE_ASSIGN_OR_RETURN(const Chooser::Winner winner, chooser->Choose(hot_seconds_));
  ProductChoice choice;
  std::memcpy(choice.algorithm.data(), &winner.algorithm, sizeof winner.algorithm);
  choice.nanoseconds = static_cast<int64_t>(winner.seconds * 1e9);
  kept_.insert_or_assign(key, choice);
  Keep(key, winner.algorithm,
       {.microseconds = winner.seconds * 1e6,
        .candidates = winner.candidates,
        .unequal = winner.unequal});
  return {};
}

Status ProductLibrary::Impl::Warm(Span<const ProductShape> shapes, const Stream& stream,
                                  DeviceMemory* scratch) {
  if (scratch == nullptr) scratch = memory_;
  SEGUE_ASSIGN_OR_RETURN(const std::vector<ProductShape> work, NotChosen(shapes));
  SEGUE_RETURN_IF_ERROR(ReadyToWait(stream, scratch));
  if (work.empty()) return {};
  const RelaxedCapture relaxed;
  SEGUE_ASSIGN_OR_RETURN(Chooser chooser, Chooser::Create(session_, *scratch, work));
  const ProductChoices before = kept_;
  Status status;
  for (size_t i = 0; i < work.size() && status.ok(); ++i) status = ChooseOne(work[i], &chooser);
  plans_.clear();
  if (!(kept_ == before)) WriteCache();
  return status;
}

Result<bool> ProductLibrary::Impl::PackedEqualsParts(const ProductForm& form,
                                                     Span<const int64_t> part_n,
                                                     const Stream& stream) {
  ProductForm whole = form;
  whole.n = 0;
  for (const int64_t n : part_n) whole.n += n;
  SEGUE_RETURN_IF_ERROR(CheckProductForm(kWarm, whole));
  SEGUE_RETURN_IF_ERROR(ReadyToWait(stream, memory_));
  const RelaxedCapture relaxed;
  // Enough rows for a tile of every kind, and for orders that differ in one element of ten
  // thousand.
  const int64_t rows = std::clamp<int64_t>(RowsAtOnce(whole), 16, 128);
  const ProductShape work{.form = whole, .rows = rows};
  SEGUE_ASSIGN_OR_RETURN(Chooser chooser, Chooser::Create(session_, *memory_, {&work, 1}));
  SEGUE_ASSIGN_OR_RETURN(const Algorithm reference, Reference(whole));
  SEGUE_RETURN_IF_ERROR(chooser.Begin(whole, rows, reference));
  return chooser.PartsEqual(part_n);
}

std::vector<ProductLibrary::Choice> ProductLibrary::Impl::Choices() const {
  std::vector<Choice> choices;
  for (const auto& [key, chosen] : chosen_) choices.push_back(chosen.report);
  return choices;
}

ProductLibrary::ProductLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProductLibrary::~ProductLibrary() = default;

Result<std::unique_ptr<ProductLibrary>> ProductLibrary::Create(const Settings& settings) {
  if (settings.workspace_bytes < 0 ||
      (settings.workspace == nullptr && settings.workspace_bytes > 0) ||
      reinterpret_cast<uintptr_t>(settings.workspace) % 256 != 0) {
    return ArgumentError("create product library", "workspace",
                         std::to_string(settings.workspace_bytes) + " bytes",
                         "device memory aligned to 256 bytes, or none");
  }
  SEGUE_ASSIGN_OR_RETURN(const CublasLt* lt, LoadCublasLt());
  auto impl = std::make_unique<Impl>(*lt, settings);
  SEGUE_RETURN_IF_ERROR(impl->Open(settings.cache_directory));
  return std::unique_ptr<ProductLibrary>(new ProductLibrary(std::move(impl)));
}

Status ProductLibrary::Multiply(const ProductParams& params, const Stream& stream) {
  return impl_->Multiply(params, stream);
}
Status ProductLibrary::Supports(const ProductForm& form) { return impl_->Supports(form); }
Status ProductLibrary::Warm(Span<const ProductShape> shapes, const Stream& stream,
                            DeviceMemory* scratch) {
  return impl_->Warm(shapes, stream, scratch);
}
Result<int64_t> ProductLibrary::ScratchBytes(Span<const ProductShape> shapes) const {
  return impl_->ScratchBytes(shapes);
}
Result<bool> ProductLibrary::PackedEqualsParts(const ProductForm& form, Span<const int64_t> part_n,
                                               const Stream& stream) {
  return impl_->PackedEqualsParts(form, part_n, stream);
}
std::vector<ProductLibrary::Choice> ProductLibrary::Choices() const { return impl_->Choices(); }
const std::string& ProductLibrary::cache_problem() const { return impl_->cache_problem(); }
const std::string& ProductLibrary::cache_path() const { return impl_->cache_path(); }
int64_t ProductLibrary::version() const { return impl_->version(); }

}  // namespace segue::kernels
