// Linear layers of a tensor-parallel group.
//
// A pair of them makes one sharded product: a column-parallel layer leaves its output sharded by
// columns (heads, or hidden units of a feed-forward network), a row-parallel layer takes such an
// input and sums over the ranks. Every layer reads its tensors itself, so that a network is loaded
// by constructing its members.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/tensor_view.h"
#include "kernels/linear.h"
#include "kernels/product_library.h"
#include "model/layers/forward_context.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

// Products that a forward will ask for, to be chosen beforehand (ProductLibrary::Warm).
using ProductShapes = std::vector<kernels::ProductShape>;

// A layer of the checkpoint: tensors `<name>.weight` [out, in] and, with a bias, `<name>.bias`.
struct LinearSpec {
  std::string name;
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool bias = true;
  WeightGroup group = WeightGroup::kResident;  // freed with the others of it
  bool few_rows = false;  // of its input nearly always, as text has (kernels::FewRowSplits)
};

// Every rank holds and computes all of it.
class ReplicatedLinear {
 public:
  ReplicatedLinear(WeightReader& reader, const LinearSpec& spec);

  // y [rows, y.cols] = the first y.cols outputs of x [rows, in] W^T + b; y.cols <= out.
  Status Forward(const MatrixView& x, const MatrixView& y, const ForwardContext& context,
                 kernels::Activation activation = kernels::Activation::kNone) const;

  void AppendShapes(int64_t rows, ProductShapes& shapes) const;

 private:
  int32_t splits_ = 1;
  WeightView weight_;
  WeightView bias_;
};

// This rank's out / size() consecutive outputs: rows of the weight, a view into the file.
class ColumnParallelLinear {
 public:
  // Precondition: the group's size divides out_features.
  ColumnParallelLinear(WeightReader& reader, const LinearSpec& spec,
                       const comm::Communicator& communicator);

  // Columns of the output this rank computes.
  int64_t local_out_features() const { return local_out_; }

  // y [rows, local_out_features()] = x [rows, in] W_rank^T + b_rank.
  Status Forward(const MatrixView& x, const MatrixView& y, const ForwardContext& context,
                 kernels::Activation activation = kernels::Activation::kNone) const;
  // The same with GELU, which takes the product's float32 sum: rounded once.
  Status ForwardWithGelu(const MatrixView& x, const MatrixView& y,
                         const ForwardContext& context) const;

  // Why ForwardWithGelu cannot run here; empty: it can.
  std::string RefusesGelu(const ForwardContext& context) const;

  // `gelu`: of ForwardWithGelu.
  void AppendShapes(int64_t rows, ProductShapes& shapes, bool gelu = false) const;

 private:
  int64_t local_out_ = 0;
  int32_t splits_ = 1;
  WeightView weight_;
  WeightView bias_;
};

// Several layers of one input and of one size, whose outputs lie side by side.
struct LinearGroupSpec {
  std::vector<std::string> names;
  // A checkpoint may hold them as one layer, its outputs one after another; "": never does.
  std::string merged_name;
  int64_t in_features = 0;
  int64_t out_features = 0;  // of each
};

// This rank's out / size() consecutive outputs of each layer of a group.
class ColumnParallelGroup {
 public:
  // Precondition: the communicator's size divides out_features.
  ColumnParallelGroup(WeightReader& reader, const LinearGroupSpec& spec,
                      const comm::Communicator& communicator);

  // Columns of the output this rank computes, of each layer.
  int64_t local_out_features() const { return local_out_; }

  // y [rows, (layers - first) * local_out_features()] = the outputs of layer `first` and of those
  // behind it. `packed`: as one product, where their weights lie together.
  Status Forward(const MatrixView& x, const MatrixView& y, int64_t first, bool packed,
                 const ForwardContext& context) const;
  // Whether their weights lie together.
  bool stacked() const { return weight_.all.present() && bias_.all.present(); }

  void AppendShapes(int64_t rows, int64_t first, bool packed, ProductShapes& shapes) const;

 private:
  int64_t local_out_ = 0;
  StackedWeight weight_;
  StackedWeight bias_;
};

// This rank's in / size() consecutive inputs: columns of the weight. In a group of one those are
// all; in a larger group they do not lie together in a file, so that the reader needs a store.
class RowParallelLinear {
 public:
  // Precondition: the group's size divides in_features.
  RowParallelLinear(WeightReader& reader, const LinearSpec& spec,
                    const comm::Communicator& communicator);

  int64_t local_in_features() const { return local_in_; }
  // Whether the group has several ranks, so that there is something to sum.
  bool sharded() const { return sharded_; }

  // y [rows, out] = sum over ranks of x_rank [rows, local_in_features()] W_rank^T, plus b. Rank 0
  // alone adds the bias; rounding comes after the sum.
  Status Forward(const MatrixView& x, const MatrixView& y, const ForwardContext& context) const;
  // This rank's term of that sum, not rounded where it is sharded: for callers that sum several
  // layers' at once.
  Status ForwardPartial(const MatrixView& x, const MatrixView& y,
                        const ForwardContext& context) const;

  void AppendShapes(int64_t rows, ProductShapes& shapes) const;

 private:
  int64_t local_in_ = 0;
  bool sharded_ = false;
  int32_t splits_ = 1;
  WeightView weight_;
  WeightView bias_;
};

}  // namespace segue::model
