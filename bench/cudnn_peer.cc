#include "bench/cudnn_peer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "bench/gpu_operands.h"
#include "device/thread_pool.h"

namespace segue::bench {
namespace {

constexpr int64_t kElement = 2;         // bytes of a bfloat16
constexpr double kBuildSeconds = 20.0;  // a suite has to end
constexpr int64_t kMaxBytes = int64_t{60} << 30;

std::vector<int64_t> LengthsOf(const AttentionCase& shape) {
  std::vector<int64_t> lengths;
  for (int32_t i = 0; i < shape.sequences(); ++i) {
    if (shape.KeyRows(i) > 0) lengths.push_back(shape.QueryRows(i));
  }
  return lengths;
}

bool AllEqual(const std::vector<int64_t>& lengths) {
  return std::all_of(lengths.begin(), lengths.end(),
                     [&lengths](int64_t length) { return length == lengths.front(); });
}

Error PeerError(const std::string& argument, const std::string& got, const std::string& wanted) {
  return {.code = ErrorCode::kUnsupported,
          .operation = "prepare cuDNN",
          .argument = argument,
          .got = got,
          .wanted = wanted};
}

}  // namespace

std::vector<CudnnForm> FormsFor(const AttentionCase& shape) {
  if (shape.tail > 0) return {CudnnForm::kOneByOne, CudnnForm::kAllRows};
  if (AllEqual(LengthsOf(shape))) return {CudnnForm::kBatch};
  return {CudnnForm::kOneByOne, CudnnForm::kPadded};
}

std::string FormName(CudnnForm form) {
  switch (form) {
    case CudnnForm::kOneByOne:
      return ", one by one";
    case CudnnForm::kPadded:
      return ", padded";
    case CudnnForm::kAllRows:
      return ", padding attended to";
    case CudnnForm::kBatch:
      break;
  }
  return "";
}

Result<CudnnPeer> CudnnPeer::Create(const AttentionCase& shape, CudnnForm form, int threads,
                                    const GpuStream& stream) {
  CudnnPeer peer;
  peer.shape_ = shape;
  peer.form_ = form;
  SEGUE_ASSIGN_OR_RETURN(peer.version_, kernels::CudnnVersion());
  peer.lengths_ = LengthsOf(shape);
  const int64_t longest = *std::max_element(peer.lengths_.begin(), peer.lengths_.end());
  peer.total_rows_ = shape.TotalQueryRows();
  if (form == CudnnForm::kBatch || form == CudnnForm::kPadded) {
    peer.batch_ = static_cast<int64_t>(peer.lengths_.size());
    peer.total_rows_ = peer.batch_ * longest;
  }
  if (form == CudnnForm::kAllRows) peer.lengths_ = {peer.total_rows_};
  SEGUE_RETURN_IF_ERROR(peer.BuildGraphs(threads));
  SEGUE_RETURN_IF_ERROR(peer.MakeSets(stream));
  return peer;
}

kernels::AttentionCudnnShape CudnnPeer::ShapeOf(int64_t rows) const {
  const auto strides = [&](int64_t heads) {
    return kernels::CudnnStrides{.batch = rows * heads * shape_.head_dim,
                                 .head = shape_.head_dim,
                                 .row = heads * shape_.head_dim};
  };
  return {.batch = batch_,
          .q_rows = rows,
          .kv_rows = rows,
          .q_heads = shape_.heads,
          .kv_heads = shape_.kv_heads,
          .head_dim = shape_.head_dim,
          .q = strides(shape_.heads),
          .k = strides(shape_.kv_heads),
          .v = strides(shape_.kv_heads),
          .o = strides(shape_.heads),
          .softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
          .causal = shape_.causal,
          .lse = false,
          .lengths = form_ == CudnnForm::kPadded};
}

// One graph a distinct length, built on all threads.
Status CudnnPeer::BuildGraphs(int threads) {
  std::map<int64_t, int64_t> graph_of_length;
  if (batch_ > 1) {
    graph_of_length[total_rows_ / batch_] = 0;
  } else {
    for (const int64_t length : lengths_) graph_of_length[length] = 0;
  }
  std::vector<int64_t> distinct;
  for (auto& [length, graph] : graph_of_length) {
    graph = static_cast<int64_t>(distinct.size());
    distinct.push_back(length);
  }
  graphs_.resize(distinct.size());
  std::vector<Status> statuses(distinct.size());
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto build = [&](int64_t i) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > kBuildSeconds) {
      statuses[i] = PeerError("graphs", "more than 20 seconds to build them", "less");
      return;
    }
    Result<std::unique_ptr<kernels::AttentionCudnn>> graph =
        kernels::AttentionCudnn::Create(ShapeOf(distinct[i]));
    if (graph.ok()) {
      graphs_[i] = std::move(graph).value();
    } else {
      statuses[i] = graph.error();
    }
  };
  build(0);  // loads the library
  ThreadPool pool(distinct.size() == 1 ? 1 : threads);
  pool.ForEach(static_cast<int64_t>(distinct.size()) - 1, [&](int64_t i, int) { build(i + 1); });
  for (Status& status : statuses) SEGUE_RETURN_IF_ERROR(std::move(status));
  int64_t workspace = 0;
  for (const auto& graph : graphs_) workspace = std::max(workspace, graph->workspace_bytes());
  SEGUE_ASSIGN_OR_RETURN(workspace_, GpuBuffer::Allocate(workspace));
  if (batch_ > 1) {
    calls_ = {{.graph = graphs_[0].get(), .row = 0}};
    return {};
  }
  int64_t row = 0;
  for (const int64_t length : lengths_) {
    calls_.push_back({.graph = graphs_[graph_of_length.at(length)].get(), .row = row});
    row += length;
  }
  return {};
}

Status CudnnPeer::MakeSets(const GpuStream& stream) {
  const int64_t q_elements = total_rows_ * shape_.heads * shape_.head_dim;
  const int64_t kv_elements = total_rows_ * shape_.kv_heads * shape_.head_dim;
  const int64_t bytes = 2 * (q_elements + kv_elements) * kElement;
  if (bytes > kMaxBytes) {
    return PeerError("operands", std::to_string(bytes) + " bytes",
                     "at most " + std::to_string(kMaxBytes));
  }
  for (int64_t i = 0; i < RotatingSets(bytes); ++i) {
    Set set;
    SEGUE_ASSIGN_OR_RETURN(set.q, GpuBuffer::Allocate(q_elements * kElement));
    SEGUE_ASSIGN_OR_RETURN(set.k, GpuBuffer::Allocate(kv_elements * kElement));
    SEGUE_ASSIGN_OR_RETURN(set.v, GpuBuffer::Allocate(kv_elements * kElement));
    SEGUE_ASSIGN_OR_RETURN(set.o, GpuBuffer::Allocate(q_elements * kElement));
    const uint64_t seed = 1000 + 10 * static_cast<uint64_t>(i);
    SEGUE_RETURN_IF_ERROR(FillNormal(set.q.data(), q_elements, seed, stream));
    SEGUE_RETURN_IF_ERROR(FillNormal(set.k.data(), kv_elements, seed + 1, stream));
    SEGUE_RETURN_IF_ERROR(FillNormal(set.v.data(), kv_elements, seed + 2, stream));
    SEGUE_RETURN_IF_ERROR(FillBytes(set.o.data(), 0xff, set.o.bytes()));
    sets_.push_back(std::move(set));
  }
  const std::vector<int32_t> lengths(lengths_.begin(), lengths_.end());
  const auto length_bytes = static_cast<int64_t>(lengths.size() * sizeof(int32_t));
  SEGUE_ASSIGN_OR_RETURN(device_lengths_, GpuBuffer::Allocate(length_bytes));
  SEGUE_RETURN_IF_ERROR(Upload(device_lengths_.data(), lengths.data(), length_bytes));
  return SynchronizeGpu();
}

Status CudnnPeer::Enqueue(void* stream, int64_t set) const {
  const auto* lengths = static_cast<const int32_t*>(device_lengths_.data());
  for (const Call& call : calls_) {
    const int64_t q = call.row * shape_.heads * shape_.head_dim;
    const int64_t kv = call.row * shape_.kv_heads * shape_.head_dim;
    SEGUE_RETURN_IF_ERROR(
        call.graph->Run({.q = static_cast<const uint16_t*>(sets_[set].q.data()) + q,
                         .k = static_cast<const uint16_t*>(sets_[set].k.data()) + kv,
                         .v = static_cast<const uint16_t*>(sets_[set].v.data()) + kv,
                         .o = static_cast<uint16_t*>(sets_[set].o.data()) + q,
                         .q_lengths = lengths,
                         .kv_lengths = lengths},
                        workspace_.data(), Stream::Cuda(stream)));
  }
  return {};
}

GpuContender CudnnPeer::Attention() {
  return {.name = "cuDNN" + FormName(form_),
          .version = version_,
          .rotation = static_cast<int64_t>(sets_.size()),
          .enqueue = [this](void* stream, int64_t call) { return Enqueue(stream, call); }};
}

Status CudnnPeer::Verify(const std::string& name, int threads, const GpuStream& stream) {
  SEGUE_RETURN_IF_ERROR(Enqueue(stream.get(), 0));
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  const int64_t q_width = int64_t{shape_.heads} * shape_.head_dim;
  const int64_t kv_width = int64_t{shape_.kv_heads} * shape_.head_dim;
  std::vector<CheckedSequence> sequences;
  int64_t row = 0;
  for (const int64_t length : lengths_) {
    sequences.push_back({{.q = static_cast<const uint16_t*>(sets_[0].q.data()) + row * q_width,
                          .k = static_cast<const uint16_t*>(sets_[0].k.data()) + row * kv_width,
                          .v = static_cast<const uint16_t*>(sets_[0].v.data()) + row * kv_width,
                          .o = static_cast<const uint16_t*>(sets_[0].o.data()) + row * q_width,
                          .q_row_stride = q_width,
                          .kv_row_stride = kv_width,
                          .o_row_stride = q_width,
                          .q_rows = length,
                          .kv_rows = length}});
    row += batch_ > 1 ? total_rows_ / batch_ : length;
  }
  return CheckAttention(sequences, {.name = name + ", cuDNN" + FormName(form_),
                                    .heads = shape_.heads,
                                    .kv_heads = shape_.kv_heads,
                                    .head_dim = shape_.head_dim,
                                    .softmax_scale = ShapeOf(1).softmax_scale,
                                    .causal = shape_.causal,
                                    .threads = threads});
}

}  // namespace segue::bench
