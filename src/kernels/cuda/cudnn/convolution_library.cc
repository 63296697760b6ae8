#include "kernels/convolution_library.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/cuda/cudnn/convolution_plan.h"
#include "kernels/cuda/cudnn/library.h"

namespace segue::kernels {
namespace {

using cudnn::ConvolutionPlan;
using cudnn::ConvolutionShape;

ConvolutionShape ShapeOf(const Conv2dParams& params) {
  const bool residual = params.residual.data != nullptr;
  return {.height = params.height,
          .width = params.width,
          .in_channels = params.x.cols,
          .out_channels = params.y.cols,
          .kernel = params.weight.shape[1],
          .x_stride = params.x.stride,
          .y_stride = params.y.stride,
          .residual_stride = residual ? params.residual.stride : 0,
          .has_bias = params.bias.present(),
          .bias_type = params.bias.present() ? params.bias.dtype : DType::kBF16};
}

std::string Describe(const ConvolutionShape& shape) {
  const std::string kernel = std::to_string(shape.kernel);
  return std::to_string(shape.width) + " x " + std::to_string(shape.height) + ", " +
         std::to_string(shape.in_channels) + " to " + std::to_string(shape.out_channels) +
         " channels, " + kernel + " x " + kernel + (shape.residual_stride != 0 ? ", residual" : "");
}

bool IsAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// Why no plan is even looked for.
const char* RejectsParams(const Conv2dParams& params) {
  if (params.order != WeightOrder::kOutTapsIn) return "weights lie in the checkpoint's order";
  if (params.weight.dtype != DType::kBF16) return "weights are not bfloat16";
  if (params.upsample) return "the map was not doubled before";
  if (params.x.rows == 0) return "there are no pixels";
  const bool aligned = IsAligned(params.x.data) && IsAligned(params.weight.data) &&
                       IsAligned(params.bias.data) && IsAligned(params.residual.data) &&
                       IsAligned(params.y.data);
  return aligned ? nullptr : "tensors are not aligned to 16 bytes";
}

}  // namespace

class ConvolutionLibrary::Impl {
 public:
  explicit Impl(const Settings& settings) : settings_(settings) {}

  Status Create() { return handle_.Create(); }

  const char* Rejects(const Conv2dParams& params) {
    if (const char* reason = RejectsParams(params)) return reason;
    const std::lock_guard lock(mutex_);
    const Entry& entry = Find(ShapeOf(params));
    return entry.plan != nullptr ? nullptr : "the library has no plan for this shape";
  }

  Status Convolve(const Conv2dParams& params, const Stream& stream) {
    const std::lock_guard lock(mutex_);
    const Entry& entry = Find(ShapeOf(params));
    if (entry.plan == nullptr) {
      return Error{.code = ErrorCode::kInternal,
                   .operation = "conv2d",
                   .argument = Describe(entry.shape),
                   .got = entry.problem,
                   .wanted = "parameters that the library accepted"};
    }
    SEGUE_RETURN_IF_ERROR(handle_.SetStream(stream.cuda_stream()));
    return entry.plan->Run(handle_,
                           {.x = params.x.data,
                            .weight = params.weight.data,
                            .bias = params.bias.data,
                            .residual = params.residual.data,
                            .y = params.y.data},
                           settings_.workspace);
  }

  std::vector<Choice> Choices() const {
    const std::lock_guard lock(mutex_);
    std::vector<Choice> choices;
    for (const Entry& entry : entries_) {
      const bool there = entry.plan != nullptr;
      choices.push_back({.shape = Describe(entry.shape),
                         .plan = there ? entry.plan->description() : entry.problem,
                         .workspace_bytes = there ? entry.plan->workspace_bytes() : 0});
    }
    return choices;
  }

 private:
  struct Entry {
    ConvolutionShape shape;
    std::unique_ptr<ConvolutionPlan> plan;  // null: there is none
    std::string problem;
  };

  // A model has a few dozen shapes: walking them costs less than a launch.
  const Entry& Find(const ConvolutionShape& shape) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&shape](const Entry& entry) { return entry.shape == shape; });
    if (found != entries_.end()) return *found;
    const cudnn::RelaxedCapture relaxed;
    auto plan = ConvolutionPlan::Create(handle_, shape, settings_.workspace_bytes);
    Entry entry = {.shape = shape, .plan = nullptr, .problem = ""};
    if (plan) {
      entry.plan = std::move(*plan);
    } else {
      entry.problem = plan.error().Message();
    }
    entries_.push_back(std::move(entry));
    return entries_.back();
  }

  Settings settings_;
  cudnn::Handle handle_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

Result<std::unique_ptr<ConvolutionLibrary>> ConvolutionLibrary::Create(const Settings& settings) {
  SEGUE_RETURN_IF_ERROR(LoadCudnn());
  auto impl = std::make_unique<Impl>(settings);
  SEGUE_RETURN_IF_ERROR(impl->Create());
  return std::unique_ptr<ConvolutionLibrary>(new ConvolutionLibrary(std::move(impl)));
}

ConvolutionLibrary::ConvolutionLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvolutionLibrary::~ConvolutionLibrary() = default;

const char* ConvolutionLibrary::Rejects(const Conv2dParams& params) {
  return impl_->Rejects(params);
}

Status ConvolutionLibrary::Convolve(const Conv2dParams& params, const Stream& stream) {
  return impl_->Convolve(params, stream);
}

std::vector<ConvolutionLibrary::Choice> ConvolutionLibrary::Choices() const {
  return impl_->Choices();
}

}  // namespace segue::kernels
