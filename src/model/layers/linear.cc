#include "model/layers/linear.h"

#include <cstring>

namespace segue::model {
namespace {

// Rows [begin, begin + count) of a matrix or of a vector.
WeightView RowSlice(WeightView view, int64_t begin, int64_t count) {
  if (!view.present()) return view;
  const int64_t row_elements = view.shape.rank() == 2 ? view.shape[1] : 1;
  const int64_t offset = begin * row_elements * static_cast<int64_t>(SizeOf(view.dtype));
  view.data = static_cast<const std::byte*>(view.data) + offset;
  view.shape = view.shape.rank() == 2 ? Shape{count, row_elements} : Shape{count};
  return view;
}

WeightView TakeWeight(WeightReader& reader, const LinearSpec& spec) {
  return reader.Take(spec.name + ".weight", {spec.out_features, spec.in_features});
}

WeightView TakeBias(WeightReader& reader, const LinearSpec& spec) {
  return spec.bias ? reader.Take(spec.name + ".bias", {spec.out_features}) : WeightView{};
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(WeightReader& reader, const LinearSpec& spec)
    : weight_(TakeWeight(reader, spec)), bias_(TakeBias(reader, spec)) {}

Status ReplicatedLinear::Forward(const MatrixView& x, const MatrixView& y,
                                 const ForwardContext& context,
                                 kernels::Activation activation) const {
  return kernels::Linear({.x = x,
                          .weight = RowSlice(weight_, 0, y.cols),
                          .bias = RowSlice(bias_, 0, y.cols),
                          .y = y,
                          .rounding = context.rounding,
                          .activation = activation},
                         context.kernels);
}

ColumnParallelLinear::ColumnParallelLinear(WeightReader& reader, const LinearSpec& spec,
                                           const comm::Communicator& communicator)
    : local_out_(spec.out_features / communicator.size()),
      weight_(RowSlice(TakeWeight(reader, spec), communicator.rank() * local_out_, local_out_)),
      bias_(RowSlice(TakeBias(reader, spec), communicator.rank() * local_out_, local_out_)) {}

Status ColumnParallelLinear::Forward(const MatrixView& x, const MatrixView& y,
                                     const ForwardContext& context,
                                     kernels::Activation activation) const {
  return kernels::Linear({.x = x,
                          .weight = weight_,
                          .bias = bias_,
                          .y = y,
                          .rounding = context.rounding,
                          .activation = activation},
                         context.kernels);
}

ColumnParallelGroup::ColumnParallelGroup(WeightReader& reader, const LinearGroupSpec& spec,
                                         const comm::Communicator& communicator)
    : local_out_(spec.out_features / communicator.size()) {
  const auto count = static_cast<int64_t>(spec.names.size());
  const int64_t all = count * spec.out_features;
  WeightView merged_weight;
  WeightView merged_bias;
  if (!spec.merged_name.empty()) {
    merged_weight = reader.TakeOptional(spec.merged_name + ".weight", {all, spec.in_features});
  }
  if (merged_weight.present()) merged_bias = reader.Take(spec.merged_name + ".bias", {all});
  for (int64_t i = 0; i < count; ++i) {
    const LinearSpec layer = {spec.names[static_cast<size_t>(i)], spec.in_features,
                              spec.out_features};
    const bool merged = merged_weight.present();
    const int64_t begin = i * spec.out_features;
    const auto local = [&](const WeightView& view) {
      return RowSlice(view, communicator.rank() * local_out_, local_out_);
    };
    layers_.push_back({.weight = local(merged ? RowSlice(merged_weight, begin, spec.out_features)
                                              : TakeWeight(reader, layer)),
                       .bias = local(merged ? RowSlice(merged_bias, begin, spec.out_features)
                                            : TakeBias(reader, layer))});
  }
}

Status ColumnParallelGroup::Forward(const MatrixView& x, const MatrixView& y, int64_t first,
                                    const ForwardContext& context) const {
  for (auto i = static_cast<size_t>(first); i < layers_.size(); ++i) {
    const int64_t begin = (static_cast<int64_t>(i) - first) * local_out_;
    SEGUE_RETURN_IF_ERROR(kernels::Linear({.x = x,
                                           .weight = layers_[i].weight,
                                           .bias = layers_[i].bias,
                                           .y = y.Cols(begin, local_out_),
                                           .rounding = context.rounding},
                                          context.kernels));
  }
  return {};
}

RowParallelLinear::RowParallelLinear(WeightReader& reader, const LinearSpec& spec,
                                     const comm::Communicator& communicator)
    : local_in_(spec.in_features / communicator.size()), weight_(TakeWeight(reader, spec)) {
  const WeightView bias = TakeBias(reader, spec);
  if (communicator.rank() == 0) bias_ = bias;
  if (communicator.size() == 1 || !weight_.present()) return;

  const auto element = static_cast<int64_t>(SizeOf(weight_.dtype));
  const int64_t row_bytes = local_in_ * element;
  slice_.resize(static_cast<size_t>(spec.out_features * row_bytes));
  const auto* source =
      static_cast<const std::byte*>(weight_.data) + communicator.rank() * row_bytes;
  for (int64_t row = 0; row < spec.out_features; ++row) {
    std::memcpy(slice_.data() + row * row_bytes, source + row * spec.in_features * element,
                static_cast<size_t>(row_bytes));
  }
  weight_.data = slice_.data();
  weight_.shape = {spec.out_features, local_in_};
}

Status RowParallelLinear::Forward(const MatrixView& x, const MatrixView& y,
                                  const ForwardContext& context) const {
  const comm::Communicator& group = *context.communicator;
  // A partial sum is not rounded: the reference rounds the whole product once.
  const kernels::Rounding partial = group.size() == 1 ? context.rounding : kernels::Rounding::kNone;
  SEGUE_RETURN_IF_ERROR(kernels::Linear(
      {.x = x, .weight = weight_, .bias = bias_, .y = y, .rounding = partial}, context.kernels));
  SEGUE_RETURN_IF_ERROR(group.AllReduceSum(y, context.kernels.stream));
  if (partial == context.rounding) return {};
  return kernels::Activate(
      {.x = y, .y = y, .activation = kernels::Activation::kNone, .rounding = context.rounding},
      context.kernels);
}

}  // namespace segue::model
