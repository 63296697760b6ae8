#include "kernels/attention_cudnn.h"

#include <cudnn_frontend.h>

#include <exception>
#include <memory>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/cudnn/descriptor.h"
#include "kernels/cuda/cudnn/library.h"

namespace segue::kernels {
namespace {

namespace fe = cudnn_frontend;

enum TensorId : int64_t { kQ = 1, kK, kV, kO, kLse, kQLengths, kKvLengths };

Error CudnnError(const std::string& argument, const std::string& got) {
  return {.code = ErrorCode::kUnsupported,
          .operation = "attention by cuDNN",
          .argument = argument,
          .got = got,
          .wanted = "a shape that the library takes"};
}

Status CheckGraph(const char* step, const fe::error_t& status) {
  if (status.is_good()) return {};
  return CudnnError(step, status.err_msg);
}

fe::graph::Tensor_attributes Describe(const char* name, TensorId id,
                                      const std::vector<int64_t>& sizes,
                                      const std::vector<int64_t>& strides) {
  return fe::graph::Tensor_attributes().set_name(name).set_uid(id).set_dim(sizes).set_stride(
      strides);
}

std::vector<int64_t> StridesOf(const CudnnStrides& strides) {
  return {strides.batch, strides.head, strides.row, 1};
}

// Sets the shape's graph up; building comes after.
void Define(const AttentionCudnnShape& shape, fe::graph::Graph* graph) {
  const int64_t q_heads = shape.q_heads;
  const int64_t kv_heads = shape.kv_heads;
  const int64_t head_dim = shape.head_dim;
  graph
      ->set_io_data_type(shape.element_type == attention::ElementType::kFloat16
                             ? fe::DataType_t::HALF
                             : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto q = graph->tensor(
      Describe("q", kQ, {shape.batch, q_heads, shape.q_rows, head_dim}, StridesOf(shape.q)));
  const auto k = graph->tensor(
      Describe("k", kK, {shape.batch, kv_heads, shape.kv_rows, head_dim}, StridesOf(shape.k)));
  const auto v = graph->tensor(
      Describe("v", kV, {shape.batch, kv_heads, shape.kv_rows, head_dim}, StridesOf(shape.v)));
  fe::graph::SDPA_attributes options;
  options.set_name("attention").set_attn_scale(shape.softmax_scale).set_generate_stats(shape.lse);
  if (shape.causal) {
    // The same rows where queries and keys are equally many: then the more usual of the two.
    const bool square = shape.q_rows == shape.kv_rows && !shape.lengths;
    options
        .set_diagonal_alignment(square ? fe::DiagonalAlignment_t::TOP_LEFT
                                       : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
  }
  if (shape.lengths) {
    const auto lengths = [&](const char* name, TensorId id) {
      return graph->tensor(Describe(name, id, {shape.batch, 1, 1, 1}, {1, 1, 1, 1})
                               .set_data_type(fe::DataType_t::INT32));
    };
    options.set_padding_mask(true)
        .set_seq_len_q(lengths("q_lengths", kQLengths))
        .set_seq_len_kv(lengths("kv_lengths", kKvLengths));
  }
  const auto [o, lse] = graph->sdpa(q, k, v, options);
  o->set_output(true)
      .set_uid(kO)
      .set_dim({shape.batch, q_heads, shape.q_rows, head_dim})
      .set_stride(StridesOf(shape.o));
  if (shape.lse) lse->set_output(true).set_uid(kLse).set_data_type(fe::DataType_t::FLOAT);
}

class Graph final : public AttentionCudnn {
 public:
  explicit Graph(const AttentionCudnnShape& shape) : shape_(shape) {}

  Status Build() {
    const cudnn::RelaxedCapture relaxed;
    SEGUE_RETURN_IF_ERROR(handle_.Create());
    Define(shape_, &graph_);
    SEGUE_RETURN_IF_ERROR(CheckGraph("validate", graph_.validate()));
    SEGUE_RETURN_IF_ERROR(CheckGraph("describe", graph_.build_operation_graph(handle_.get())));
    SEGUE_RETURN_IF_ERROR(
        CheckGraph("choose a kernel", graph_.create_execution_plans({fe::HeurMode_t::A})));
    SEGUE_RETURN_IF_ERROR(CheckGraph("check support", graph_.check_support()));
    SEGUE_RETURN_IF_ERROR(CheckGraph("build", graph_.build_plans()));
    return CheckGraph("size the workspace", graph_.get_workspace_size(workspace_bytes_));
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  Status Run(const AttentionCudnnTensors& tensors, void* workspace,
             const Stream& stream) const override {
    std::unordered_map<int64_t, void*> pointers = {{kQ, const_cast<void*>(tensors.q)},
                                                   {kK, const_cast<void*>(tensors.k)},
                                                   {kV, const_cast<void*>(tensors.v)},
                                                   {kO, tensors.o}};
    if (shape_.lse) pointers[kLse] = tensors.lse;
    if (shape_.lengths) {
      pointers[kQLengths] = const_cast<int32_t*>(tensors.q_lengths);
      pointers[kKvLengths] = const_cast<int32_t*>(tensors.kv_lengths);
    }
    for (const auto& [id, pointer] : pointers) {
      const uintptr_t alignment = id == kLse || id >= kQLengths ? 4 : 16;
      if (pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
        return CudnnError("a tensor", pointer == nullptr ? "null" : "no multiple of 16 bytes");
      }
    }
    SEGUE_RETURN_IF_ERROR(handle_.SetStream(stream.cuda_stream()));
    try {
      return CheckGraph("run", graph_.execute(handle_.get(), pointers, workspace));
    } catch (const std::exception& error) {
      return CudnnError("run", error.what());
    }
  }

 private:
  AttentionCudnnShape shape_;
  cudnn::Handle handle_;
  fe::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<AttentionCudnn>> AttentionCudnn::Create(const AttentionCudnnShape& shape) {
  SEGUE_RETURN_IF_ERROR(LoadCudnn());
  auto graph = std::make_unique<Graph>(shape);
  try {
    SEGUE_RETURN_IF_ERROR(graph->Build());
  } catch (const std::exception& error) {
    return CudnnError("build", error.what());
  }
  return std::unique_ptr<AttentionCudnn>(std::move(graph));
}

Result<std::string> CudnnVersion() {
  SEGUE_RETURN_IF_ERROR(LoadCudnn());
  const size_t version = cudnnGetVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace segue::kernels
