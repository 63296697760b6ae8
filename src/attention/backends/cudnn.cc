// Plans served by cuDNN: one library call a sequence, on the segment in place where there is one,
// on segments put together in the workspace where there are several.
//
// Never several sequences in one call, though equal lengths would allow it: the library chooses its
// kernel by the whole shape, and a sequence's bytes must not depend on its company.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/backends/cudnn_operands.h"
#include "attention/backends/plan_backend.h"
#include "attention/plan_check.h"
#include "device/gpu.h"
#include "kernels/attention_cudnn.h"

namespace segue::attention {
namespace {

using kernels::AttentionCudnn;
using kernels::AttentionCudnnShape;

constexpr int64_t kAlignment = 256;
constexpr int64_t kElement = 2;  // bytes of a bfloat16 or float16
// Of the library's own; its forward attention asks for none or little.
constexpr int64_t kLibraryBytes = int64_t{16} << 20;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string RejectsCudnn(const PlanSettings& settings) {
  const Options& options = settings.options;
  if (settings.device_lengths)
    return "lengths in device memory: the library needs them on the host";
  if (options.element_type == ElementType::kFloat32) {
    return "element type is float32, not bfloat16 or float16";
  }
  if (options.head_dim % 8 != 0 || options.head_dim > 256) {
    return "head_dim is " + std::to_string(options.head_dim) + ", not a multiple of 8 up to 256";
  }
  if (!(options.softmax_scale > 0.0f)) return "softmax scale is not greater than 0";
  const int32_t capability = settings.gpu->compute_capability;
  if (capability < 80) {
    return "compute capability " + std::to_string(capability / 10) + "." +
           std::to_string(capability % 10) + ", below 8.0";
  }
  const Result<std::string> version = kernels::CudnnVersion();
  return version.ok() ? "" : version.error().got;
}

// Where things lie in the workspace; bytes.
struct Layout {
  int64_t q = kLibraryBytes;
  int64_t k = 0;
  int64_t v = 0;
  int64_t o = 0;
  int64_t lse = 0;
  int64_t end = 0;
};

// Rows that keys and values of a sequence have room for.
int64_t KeyRowCapacity(const PlanSettings& settings) {
  int64_t rows = 0;
  for (const TensorRows& tensor : settings.tensors) rows += tensor.kv_rows;
  return rows;
}

Layout LayOut(const PlanSettings& settings) {
  const Options& options = settings.options;
  const int64_t q_bytes =
      AlignUp(settings.max_query_rows * options.q_heads * options.head_dim * kElement);
  const int64_t kv_bytes =
      AlignUp(KeyRowCapacity(settings) * options.kv_heads * options.head_dim * kElement);
  const int64_t lse_bytes =
      settings.wants_lse ? AlignUp(settings.max_query_rows * options.q_heads * 4) : 0;
  Layout layout;
  layout.k = layout.q + q_bytes;
  layout.v = layout.k + kv_bytes;
  layout.o = layout.v + kv_bytes;
  layout.lse = layout.o + q_bytes;
  layout.end = layout.lse + lse_bytes;
  return layout;
}

// What one sequence needs done, decided before anything is enqueued.
struct SequenceCall {
  RowPieces keyless;  // query rows that see no key: the first of the sequence
  RowPieces queries;  // all others
  RowPieces keys;
  const AttentionCudnn* graph = nullptr;  // null: no query row sees a key
};

class CudnnPlan : public BackendPlan {
 public:
  explicit CudnnPlan(const PlanSettings& settings)
      : settings_(settings), layout_(LayOut(settings)) {}

  int64_t workspace_bytes() const override { return layout_.end; }
  Status Prepare(void*, void*) override { return {}; }

  Status SetLengths(Span<const SegmentRows> rows, void*, void*) override {
    const int64_t capacity = KeyRowCapacity(settings_);
    for (size_t i = 0; i < rows.size(); i += settings_.max_segments) {
      const int64_t keys = CountRows(KeyPieces(SegmentsOf(rows, i)));
      if (keys <= capacity) continue;
      return Invalid("set attention lengths",
                     "cudnn, sequence " + std::to_string(i / settings_.max_segments),
                     std::to_string(keys) + " key rows, some of them twice",
                     "at most all that there are, " + std::to_string(capacity));
    }
    rows_.assign(rows.begin(), rows.end());
    return {};
  }

  Status Refresh(const SegmentRows*, const int32_t*, void*, void*) override {
    return Invalid("refresh attention lengths", "cudnn", "lengths in device memory",
                   "lengths on the host");
  }

  Status Run(Span<const TensorSet> tensors, float* lse, int64_t lse_stride, void* workspace,
             void* stream) const override;

  // Lengths were on the host, where they are checked.
  Result<LengthsReport> ReadReport(void*, void*) const override { return LengthsReport{}; }

  Result<WorkList> Work(Span<const SegmentRows>) const override {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "list attention work",
                 .argument = "cudnn",
                 .got = "an order that is the library's own",
                 .wanted = "another back end"};
  }

 private:
  struct Tensors {
    CudnnTensor q, k, v, o;
  };

  Span<const SegmentRows> SegmentsOf(Span<const SegmentRows> rows, size_t begin) const {
    return Span<const SegmentRows>(rows.data() + begin, settings_.max_segments);
  }
  Tensors TensorsOf(Span<const TensorSet> sets, void* workspace) const;
  Result<SequenceCall> Plan(Span<const SegmentRows> segments, const Tensors& tensors) const;
  Result<const AttentionCudnn*> GraphFor(const AttentionCudnnShape& shape) const;
  Status Attend(const SequenceCall& call, const Tensors& tensors, void* workspace,
                void* stream) const;
  Status WriteLse(const SequenceCall& call, float* lse, int64_t lse_stride, void* workspace,
                  void* stream) const;

  PlanSettings settings_;
  Layout layout_;
  std::vector<SegmentRows> rows_;
  // Built by the first run that needs them, which takes some tenths of a second each, and kept as
  // long as the plan: graphs that captured a run hold on to their code.
  mutable std::vector<std::pair<AttentionCudnnShape, std::unique_ptr<AttentionCudnn>>> graphs_;
};

CudnnPlan::Tensors CudnnPlan::TensorsOf(Span<const TensorSet> sets, void* workspace) const {
  const Options& options = settings_.options;
  auto* bytes = static_cast<uint8_t*>(workspace);
  const auto make = [&](RowsView TensorSet::* view, int64_t heads, int64_t offset) {
    return CudnnTensor(sets, view, heads, options.head_dim, bytes + offset);
  };
  return {.q = make(&TensorSet::q, options.q_heads, layout_.q),
          .k = make(&TensorSet::k, options.kv_heads, layout_.k),
          .v = make(&TensorSet::v, options.kv_heads, layout_.v),
          .o = make(&TensorSet::o, options.q_heads, layout_.o)};
}

Result<const AttentionCudnn*> CudnnPlan::GraphFor(const AttentionCudnnShape& shape) const {
  for (const auto& [built, graph] : graphs_) {
    if (built == shape) return graph.get();
  }
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<AttentionCudnn> graph, AttentionCudnn::Create(shape));
  if (graph->workspace_bytes() > kLibraryBytes) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "run attention",
                 .argument = "cudnn, workspace of the library",
                 .got = std::to_string(graph->workspace_bytes()) + " bytes",
                 .wanted = "at most " + std::to_string(kLibraryBytes)};
  }
  graphs_.emplace_back(shape, std::move(graph));
  return graphs_.back().second.get();
}

Result<SequenceCall> CudnnPlan::Plan(Span<const SegmentRows> segments,
                                     const Tensors& tensors) const {
  const Options& options = settings_.options;
  SequenceCall call;
  const RowPieces all = QueryPieces(segments);
  const int64_t q_rows = CountRows(all);
  call.keys = KeyPieces(segments);
  const int64_t kv_rows = CountRows(call.keys);
  int64_t keyless = kv_rows == 0 ? q_rows : 0;
  if (options.causal) keyless = std::max<int64_t>(keyless, q_rows - kv_rows);
  call.keyless = SlicePieces(all, 0, keyless);
  call.queries = SlicePieces(all, keyless, q_rows - keyless);
  if (keyless == q_rows) return call;
  SEGUE_RETURN_IF_ERROR(tensors.q.Check(call.queries, "q"));
  SEGUE_RETURN_IF_ERROR(tensors.k.Check(call.keys, "k"));
  SEGUE_RETURN_IF_ERROR(tensors.v.Check(call.keys, "v"));
  SEGUE_RETURN_IF_ERROR(tensors.o.Check(call.queries, "o"));
  SEGUE_ASSIGN_OR_RETURN(call.graph, GraphFor({.batch = 1,
                                               .q_rows = q_rows - keyless,
                                               .kv_rows = kv_rows,
                                               .q_heads = options.q_heads,
                                               .kv_heads = options.kv_heads,
                                               .head_dim = options.head_dim,
                                               .q = tensors.q.Operand(call.queries).strides,
                                               .k = tensors.k.Operand(call.keys).strides,
                                               .v = tensors.v.Operand(call.keys).strides,
                                               .o = tensors.o.Operand(call.queries).strides,
                                               .softmax_scale = options.softmax_scale,
                                               .causal = options.causal,
                                               .lse = settings_.wants_lse,
                                               .element_type = options.element_type}));
  return call;
}

Status CudnnPlan::Attend(const SequenceCall& call, const Tensors& tensors, void* workspace,
                         void* stream) const {
  SEGUE_RETURN_IF_ERROR(tensors.o.SetToZero(call.keyless, stream));
  if (call.graph == nullptr) return {};
  if (!tensors.q.InPlace(call.queries)) {
    SEGUE_RETURN_IF_ERROR(tensors.q.Gather(call.queries, stream));
  }
  if (!tensors.k.InPlace(call.keys)) SEGUE_RETURN_IF_ERROR(tensors.k.Gather(call.keys, stream));
  if (!tensors.v.InPlace(call.keys)) SEGUE_RETURN_IF_ERROR(tensors.v.Gather(call.keys, stream));
  auto* bytes = static_cast<uint8_t*>(workspace);
  SEGUE_RETURN_IF_ERROR(call.graph->Run(
      {.q = tensors.q.Operand(call.queries).data,
       .k = tensors.k.Operand(call.keys).data,
       .v = tensors.v.Operand(call.keys).data,
       .o = tensors.o.Operand(call.queries).data,
       .lse = settings_.wants_lse ? reinterpret_cast<float*>(bytes + layout_.lse) : nullptr},
      workspace, Stream::Cuda(stream)));
  if (tensors.o.InPlace(call.queries)) return {};
  return tensors.o.Scatter(call.queries, stream);
}

// The library's [q_heads, rows] into columns of the caller's; -infinity before them.
Status CudnnPlan::WriteLse(const SequenceCall& call, float* lse, int64_t lse_stride,
                           void* workspace, void* stream) const {
  const int64_t keyless = CountRows(call.keyless);
  for (int64_t head = 0; head < settings_.options.q_heads && keyless > 0; ++head) {
    SEGUE_RETURN_IF_ERROR(SetToMinusInfinity(lse + head * lse_stride, keyless, stream));
  }
  if (call.graph == nullptr) return {};
  constexpr int64_t kFloat = sizeof(float);
  const int64_t row_bytes = CountRows(call.queries) * kFloat;
  return CopyPieces({lse + keyless, lse_stride * kFloat},
                    {static_cast<uint8_t*>(workspace) + layout_.lse, row_bytes}, row_bytes,
                    settings_.options.q_heads, stream);
}

Status CudnnPlan::Run(Span<const TensorSet> tensors, float* lse, int64_t lse_stride,
                      void* workspace, void* stream) const {
  const Tensors views = TensorsOf(tensors, workspace);
  std::vector<SequenceCall> calls;
  calls.reserve(rows_.size() / settings_.max_segments);
  for (size_t i = 0; i < rows_.size(); i += settings_.max_segments) {
    SEGUE_ASSIGN_OR_RETURN(SequenceCall call, Plan(SegmentsOf(rows_, i), views));
    calls.push_back(std::move(call));
  }
  for (const SequenceCall& call : calls) {
    SEGUE_RETURN_IF_ERROR(Attend(call, views, workspace, stream));
    if (lse == nullptr) continue;
    SEGUE_RETURN_IF_ERROR(WriteLse(call, lse, lse_stride, workspace, stream));
    lse += CountRows(call.keyless) + CountRows(call.queries);
  }
  return {};
}

}  // namespace

constinit const PlanBackend kCudnnPlanBackend = {
    "cudnn", Place::kCuda, RejectsCudnn,
    [](const PlanSettings& settings) -> Result<std::unique_ptr<BackendPlan>> {
      return std::unique_ptr<BackendPlan>(std::make_unique<CudnnPlan>(settings));
    }};

}  // namespace segue::attention
