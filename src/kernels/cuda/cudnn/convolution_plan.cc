#include "kernels/cuda/cudnn/convolution_plan.h"

#include <algorithm>
#include <array>

namespace segue::kernels::cudnn {
namespace {

enum TensorId : int64_t { kX = 1, kWeight, kBias, kResidual, kY, kSum, kBiased };

cudnnDataType_t TypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDNN_DATA_FLOAT;
    case DType::kF16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_BFLOAT16;
  }
}

// [1, channels, height, width] with the channels of a pixel side by side.
struct Map {
  TensorId id;
  int64_t channels, height, width, stride;
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  bool in_registers = false;  // never reaches memory
  int64_t maps = 1;
};

Descriptor Describe(const char* name, const Map& map) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, name);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, map.id);
  tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, map.type);
  // Every tensor's base is a multiple of 16 bytes; rows that are not show in the strides.
  tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  const std::array<int64_t, 4> sizes = {map.maps, map.channels, map.height, map.width};
  const std::array<int64_t, 4> strides = {map.height * map.width * map.stride, 1,
                                          map.width * map.stride, map.stride};
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, Span<const int64_t>(sizes));
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, Span<const int64_t>(strides));
  tensor.SetRaw(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &map.in_registers);
  return tensor;
}

Descriptor DescribeConvolution(int64_t kernel) {
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution");
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const std::array<int64_t, 2> padding = {kernel / 2, kernel / 2};
  const std::array<int64_t, 2> ones = {1, 1};
  convolution.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  convolution.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  convolution.SetRaw(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  convolution.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Span<const int64_t>(padding));
  convolution.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Span<const int64_t>(padding));
  convolution.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Span<const int64_t>(ones));
  convolution.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Span<const int64_t>(ones));
  return convolution;
}

Descriptor DescribeAdd() {
  Descriptor add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "addition");
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  add.SetRaw(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  add.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  return add;
}

}  // namespace

// What an operation graph refers to; all of it lives as long as the graph.
class ConvolutionPlan::Graph {
 public:
  explicit Graph(const ConvolutionShape& shape) : shape_(shape) {}

  Status Build(const Handle& handle) {
    AddConvolution();
    if (shape_.has_bias) AddTerm("bias", Bias(), "biased", shape_.residual_stride == 0);
    if (shape_.residual_stride != 0) AddTerm("residual", Residual(), "sum", true);
    SEGUE_RETURN_IF_ERROR(status_);
    const cudnnHandle_t raw = handle.get();
    graph_.SetRaw(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &raw);
    graph_.SetRaw(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  static_cast<int64_t>(operations_.size()), operations_.data());
    return graph_.Finalize();
  }

  const Descriptor& graph() const { return graph_; }
  const ConvolutionShape& shape() const { return shape_; }

 private:
  Map Output(TensorId id, bool last) const {
    return {.id = last ? kY : id,
            .channels = shape_.out_channels,
            .height = shape_.height,
            .width = shape_.width,
            .stride = last ? shape_.y_stride : shape_.out_channels,
            .type = last || id == kBiased ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT,
            .in_registers = !last};
  }
  Map Bias() const {
    return {.id = kBias,
            .channels = shape_.out_channels,
            .height = 1,
            .width = 1,
            .stride = shape_.out_channels,
            .type = TypeOf(shape_.bias_type)};
  }
  Map Residual() const {
    Map map = Output(kY, true);
    map.id = kResidual;
    map.stride = shape_.residual_stride;
    return map;
  }

  // Whatever refers to a descriptor wants it finalised.
  const Descriptor* Keep(Descriptor descriptor) {
    kept_.push_back(std::make_unique<Descriptor>(std::move(descriptor)));
    const Status status = kept_.back()->Finalize();
    if (status_.ok() && !status.ok()) status_ = status;
    return kept_.back().get();
  }
  void Operate(Descriptor operation) { operations_.push_back(Keep(std::move(operation))->get()); }

  void AddConvolution() {
    const Descriptor* x = Keep(Describe("x", {.id = kX,
                                              .channels = shape_.in_channels,
                                              .height = shape_.height,
                                              .width = shape_.width,
                                              .stride = shape_.x_stride}));
    const Descriptor* weight = Keep(Describe("weight", {.id = kWeight,
                                                        .channels = shape_.in_channels,
                                                        .height = shape_.kernel,
                                                        .width = shape_.kernel,
                                                        .stride = shape_.in_channels,
                                                        .maps = shape_.out_channels}));
    const bool alone = !shape_.has_bias && shape_.residual_stride == 0;
    last_ = Keep(Describe("convolved", Output(kSum, alone)));
    const Descriptor* convolution = Keep(DescribeConvolution(shape_.kernel));
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         "forward convolution");
    operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, *convolution);
    operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, *x);
    operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, *weight);
    operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *last_);
    operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f);
    operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f);
    Operate(std::move(operation));
  }

  // The last tensor plus another; the sum before a residual is rounded as if it were stored.
  void AddTerm(const char* name, const Map& term, const char* sum_name, bool last) {
    const Descriptor* added = Keep(Describe(name, term));
    const Descriptor* sum = Keep(Describe(sum_name, Output(kBiased, last)));
    const Descriptor* add = Keep(DescribeAdd());
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise addition");
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *add);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *last_);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *added);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *sum);
    Operate(std::move(operation));
    last_ = sum;
  }

  ConvolutionShape shape_;
  std::vector<std::unique_ptr<Descriptor>> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Status status_;  // the first failure
  const Descriptor* last_ = nullptr;
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph"};
};

namespace {

// Whether an engine gives the same bits on every run, from plain sums of plain products.
bool Qualifies(const Descriptor& config) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
  cudnnBackendDescriptor_t raw = engine.get();
  if (config.Get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw) != 1) {
    return false;
  }
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes;
  const int64_t count = engine.Get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  return std::all_of(notes.begin(), notes.begin() + count, [](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
  });
}

// The library's suggestions, the best first.
Result<std::vector<std::unique_ptr<Descriptor>>> Suggestions(const Descriptor& graph) {
  std::vector<std::unique_ptr<Descriptor>> configs;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.SetRaw(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    SEGUE_RETURN_IF_ERROR(heuristics.Finalize());
    const int64_t count =
        heuristics.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<std::unique_ptr<Descriptor>> found;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < count; ++i) {
      found.push_back(
          std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration"));
      raw.push_back(found.back()->get());
    }
    const int64_t got = heuristics.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       count, raw.data());
    for (int64_t i = 0; i < std::min(got, count); ++i) configs.push_back(std::move(found[i]));
  }
  return configs;
}

Result<Descriptor> MakePlan(const Handle& handle, const Descriptor& config) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
  const cudnnHandle_t raw = handle.get();
  plan.SetRaw(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &raw);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  SEGUE_RETURN_IF_ERROR(plan.Finalize());
  return plan;
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(std::shared_ptr<const Graph> graph, Descriptor plan)
    : graph_(std::move(graph)), plan_(std::move(plan)) {
  plan_.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_bytes_);
  const int64_t length =
      plan_.Get(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, nullptr);
  description_.resize(static_cast<size_t>(length));
  plan_.Get(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length,
            description_.data());
}

ConvolutionPlan::~ConvolutionPlan() = default;

Result<std::vector<std::unique_ptr<ConvolutionPlan>>> ConvolutionPlan::CreateAll(
    const Handle& handle, const ConvolutionShape& shape, int64_t workspace_limit, size_t limit) {
  const auto graph = std::make_shared<Graph>(shape);
  SEGUE_RETURN_IF_ERROR(graph->Build(handle));
  auto configs = Suggestions(graph->graph());
  if (!configs) return configs.error();
  std::vector<std::unique_ptr<ConvolutionPlan>> plans;
  for (const auto& config : *configs) {
    if (plans.size() == limit) break;
    if (!Qualifies(*config)) continue;
    Result<Descriptor> made = MakePlan(handle, *config);
    if (!made) continue;  // suggested, but not for this very shape
    std::unique_ptr<ConvolutionPlan> plan(new ConvolutionPlan(graph, std::move(*made)));
    if (plan->workspace_bytes() <= workspace_limit) plans.push_back(std::move(plan));
  }
  return plans;
}

Result<std::unique_ptr<ConvolutionPlan>> ConvolutionPlan::Create(const Handle& handle,
                                                                 const ConvolutionShape& shape,
                                                                 int64_t workspace_limit) {
  auto plans = CreateAll(handle, shape, workspace_limit, 1);
  if (!plans) return plans.error();
  if (plans->empty()) return CallError("choose an engine", CUDNN_STATUS_NOT_SUPPORTED);
  return std::move(plans->front());
}

Status ConvolutionPlan::Run(const Handle& handle, const ConvolutionTensors& tensors,
                            void* workspace) const {
  const ConvolutionShape& shape = graph_->shape();
  std::vector<int64_t> ids = {kX, kWeight, kY};
  std::vector<void*> pointers = {const_cast<void*>(tensors.x), const_cast<void*>(tensors.weight),
                                 tensors.y};
  if (shape.has_bias) {
    ids.push_back(kBias);
    pointers.push_back(const_cast<void*>(tensors.bias));
  }
  if (shape.residual_stride != 0) {
    ids.push_back(kResidual);
    pointers.push_back(const_cast<void*>(tensors.residual));
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "tensors");
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Span<const int64_t>(ids));
  pack.SetRaw(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
              static_cast<int64_t>(pointers.size()), pointers.data());
  pack.SetRaw(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  SEGUE_RETURN_IF_ERROR(pack.Finalize());
  const cudnnStatus_t status = cudnnBackendExecute(handle.get(), plan_.get(), pack.get());
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return CallError("run a convolution", status);
}

}  // namespace segue::kernels::cudnn
