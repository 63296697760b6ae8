#include "model/layers/linear.h"

#include "kernels/product_choice.h"

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

int32_t Splits(const LinearSpec& spec, int64_t out, int64_t in) {
  return spec.few_rows ? kernels::FewRowSplits(out, in) : 1;
}

kernels::ProductShape ShapeOf(const WeightView& weight, bool bias, int32_t splits, int64_t rows) {
  return {.form = {.n = weight.shape[0], .k = weight.shape[1], .k_splits = splits, .bias = bias},
          .rows = rows};
}

WeightView TakeWeight(WeightReader& reader, const LinearSpec& spec, const WeightSlice& slice = {}) {
  return reader.Take(spec.name + ".weight", {spec.out_features, spec.in_features},
                     {.slice = slice, .group = spec.group});
}

WeightView TakeBias(WeightReader& reader, const LinearSpec& spec, const WeightSlice& slice = {}) {
  if (!spec.bias) return {};
  return reader.Take(spec.name + ".bias", {spec.out_features},
                     {.slice = slice, .group = spec.group});
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(WeightReader& reader, const LinearSpec& spec)
    : splits_(Splits(spec, spec.out_features, spec.in_features)),
      weight_(TakeWeight(reader, spec)),
      bias_(TakeBias(reader, spec)) {}

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
      splits_(Splits(spec, local_out_, spec.in_features)) {
  const WeightSlice own = WeightSlice::Rows(communicator.rank() * local_out_, local_out_);
  weight_ = TakeWeight(reader, spec, own);
  bias_ = TakeBias(reader, spec, own);
}

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

Status ColumnParallelLinear::ForwardWithGelu(const MatrixView& x, const MatrixView& y,
                                             const ForwardContext& context) const {
  const bool rounded = context.rounding != kernels::Rounding::kNone;
  return kernels::Linear(
      {.x = x,
       .weight = weight_,
       .bias = bias_,
       .y = y,
       .rounding = rounded ? kernels::Rounding::kBF16Once : kernels::Rounding::kNone,
       .activation = kernels::Activation::kGeluTanh},
      context.kernels);
}

std::string ColumnParallelLinear::RefusesGelu(const ForwardContext& context) const {
  if (context.kernels.stream.device() == DeviceKind::kCpu) return "";
  if (context.kernels.products == nullptr) return "no product library was made";
  kernels::ProductForm form = ShapeOf(weight_, bias_.present(), splits_, 1).form;
  form.epilogue = kernels::ProductEpilogue::kGeluTanh;
  const Status supported = context.kernels.products->Supports(form);
  return supported.ok() ? "" : supported.error().Message();
}

ColumnParallelGroup::ColumnParallelGroup(WeightReader& reader, const LinearGroupSpec& spec,
                                         const comm::Communicator& communicator)
    : local_out_(spec.out_features / communicator.size()) {
  const bool merged =
      !spec.merged_name.empty() && reader.table().Contains(spec.merged_name + ".weight");
  const auto count = static_cast<int64_t>(spec.names.size());
  std::vector<StackedPart> weights;
  std::vector<StackedPart> biases;
  for (int64_t i = 0; i < count; ++i) {
    // A merged layer is dealt out third by third, not as a whole.
    const std::string& name = merged ? spec.merged_name : spec.names[static_cast<size_t>(i)];
    const int64_t out = merged ? count * spec.out_features : spec.out_features;
    const int64_t begin = (merged ? i * spec.out_features : 0) + communicator.rank() * local_out_;
    const WeightSlice own = WeightSlice::Rows(begin, local_out_);
    weights.push_back({name + ".weight", {out, spec.in_features}, own});
    biases.push_back({name + ".bias", {out}, own});
  }
  weight_ = reader.TakeStacked(weights);
  bias_ = reader.TakeStacked(biases);
}

Status ColumnParallelGroup::Forward(const MatrixView& x, const MatrixView& y, int64_t first,
                                    bool packed, const ForwardContext& context) const {
  const auto run = [&](const WeightView& weight, const WeightView& bias, const MatrixView& out) {
    return kernels::Linear(
        {.x = x, .weight = weight, .bias = bias, .y = out, .rounding = context.rounding},
        context.kernels);
  };
  const auto layers = static_cast<int64_t>(weight_.parts.size());
  // One product of weights that lie together gives the bytes of several on the CPU by definition;
  // on a GPU that is a property of the weight's class, found out when the model was loaded.
  if (packed && stacked()) {
    const int64_t begin = first * local_out_;
    const int64_t count = (layers - first) * local_out_;
    return run(RowSlice(weight_.all, begin, count), RowSlice(bias_.all, begin, count), y);
  }
  for (int64_t i = first; i < layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    SEGUE_RETURN_IF_ERROR(run(weight_.parts[layer], bias_.parts[layer],
                              y.Cols((i - first) * local_out_, local_out_)));
  }
  return {};
}

RowParallelLinear::RowParallelLinear(WeightReader& reader, const LinearSpec& spec,
                                     const comm::Communicator& communicator)
    : local_in_(spec.in_features / communicator.size()),
      sharded_(communicator.size() > 1),
      splits_(Splits(spec, spec.out_features, local_in_)) {
  const int64_t begin = communicator.rank() * local_in_;
  weight_ =
      TakeWeight(reader, spec, sharded_ ? WeightSlice::Columns(begin, local_in_) : WeightSlice{});
  const WeightView bias = TakeBias(reader, spec);
  if (communicator.rank() == 0) bias_ = bias;
}

Status RowParallelLinear::Forward(const MatrixView& x, const MatrixView& y,
                                  const ForwardContext& context) const {
  if (!sharded_) return ForwardPartial(x, y, context);
  // The product goes where the peers read it.
  comm::SumPart part = {.partial = y, .sum = y};
  context.communicator->PlacePartials({&part, 1});
  SEGUE_RETURN_IF_ERROR(ForwardPartial(x, part.partial, context));
  SEGUE_RETURN_IF_ERROR(context.communicator->AllReduceSum({&part, 1}, context.kernels));
  // A sum that is stored as bfloat16 is rounded already.
  if (context.rounding == kernels::Rounding::kNone || y.dtype == DType::kBF16) return {};
  return kernels::Activate(
      {.x = y, .y = y, .activation = kernels::Activation::kNone, .rounding = context.rounding},
      context.kernels);
}

Status RowParallelLinear::ForwardPartial(const MatrixView& x, const MatrixView& y,
                                         const ForwardContext& context) const {
  // A partial sum is not rounded: the reference rounds the whole product once.
  const auto rounding = sharded_ ? kernels::Rounding::kNone : context.rounding;
  return kernels::Linear(
      {.x = x, .weight = weight_, .bias = bias_, .y = y, .rounding = rounding, .k_splits = splits_},
      context.kernels);
}

void ReplicatedLinear::AppendShapes(int64_t rows, ProductShapes& shapes) const {
  shapes.push_back(ShapeOf(weight_, bias_.present(), splits_, rows));
}

void ColumnParallelLinear::AppendShapes(int64_t rows, ProductShapes& shapes, bool gelu) const {
  shapes.push_back(ShapeOf(weight_, bias_.present(), splits_, rows));
  if (gelu) shapes.back().form.epilogue = kernels::ProductEpilogue::kGeluTanh;
}

void RowParallelLinear::AppendShapes(int64_t rows, ProductShapes& shapes) const {
  shapes.push_back(ShapeOf(weight_, bias_.present(), splits_, rows));
}

void ColumnParallelGroup::AppendShapes(int64_t rows, int64_t first, bool packed,
                                       ProductShapes& shapes) const {
  if (weight_.parts.empty()) return;
  kernels::ProductShape shape = ShapeOf(weight_.parts[0], bias_.parts[0].present(), 1, rows);
  if (packed && weight_.all.present()) {
    shape.form.n *= static_cast<int64_t>(weight_.parts.size()) - first;
  }
  shapes.push_back(shape);
}

}  // namespace segue::model
