// Plans of our kernel for Hopper GPUs: a schedule in the workspace, written from the host through
// page-locked memory or by the refresh kernel.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/backends/plan_backend.h"
#include "attention/backends/sm90_upload.h"
#include "attention/plan_check.h"
#include "device/gpu.h"
#include "device/stream.h"
#include "device/upload_ring.h"
#include "kernels/attention_sm90.h"
#include "kernels/schedule_builder.h"

namespace segue::attention {
namespace {

using kernels::AttentionSm90Params;
using kernels::AttentionSm90Source;
using kernels::ScheduleHeader;
using kernels::ScheduleShape;

constexpr int64_t kAlignment = 256;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Entries of work that any lengths within the settings need.
int64_t WorkCapacity(const PlanSettings& settings) {
  const int64_t segments = std::min<int64_t>(
      int64_t{settings.max_sequences} * settings.max_segments, settings.max_query_rows);
  return kernels::MaxWork(settings.max_query_rows, segments, settings.options.q_heads,
                          settings.gpu->multiprocessors);
}

ScheduleShape ShapeOf(const PlanSettings& settings) {
  ScheduleShape shape{};
  shape.capacity = {settings.max_sequences, settings.max_segments,
                    static_cast<int32_t>(WorkCapacity(settings))};
  shape.q_heads = settings.options.q_heads;
  shape.causal = settings.options.causal ? 1 : 0;
  shape.ctas = settings.gpu->multiprocessors;
  shape.sources = static_cast<int32_t>(settings.tensors.size());
  for (size_t i = 0; i < settings.tensors.size(); ++i) {
    shape.source_rows[i] = {settings.tensors[i].q_rows, settings.tensors[i].kv_rows};
  }
  shape.lse_rows = settings.max_query_rows;
  return shape;
}

// Parameters of a call but for what differs between calls.
AttentionSm90Params ParamsOf(const PlanSettings& settings) {
  const Options& options = settings.options;
  AttentionSm90Params params;
  // A plan without tensors has batches without rows.
  params.source_count = std::max(1, static_cast<int32_t>(settings.tensors.size()));
  params.q_heads = options.q_heads;
  params.kv_heads = options.kv_heads;
  params.head_dim = options.head_dim;
  params.ctas = settings.gpu->multiprocessors;
  params.softmax_scale = options.softmax_scale;
  params.causal = options.causal;
  params.element_type = options.element_type;
  return params;
}

std::string RejectsSm90(const PlanSettings& settings) {
  const int32_t capability = settings.gpu->compute_capability;
  if (capability != 90) {
    return "compute capability " + std::to_string(capability / 10) + "." +
           std::to_string(capability % 10) + ", not 9.0";
  }
  if (settings.tensors.size() > kernels::kMaxSources) {
    return std::to_string(settings.tensors.size()) + " tensor sets, more than 8";
  }
  AttentionSm90Params params = ParamsOf(settings);
  params.capacity = {settings.max_sequences, settings.max_segments, 0};
  alignas(16) static int32_t somewhere[4];  // pointers are checked with each call
  params.schedule = somewhere;
  params.counters = somewhere;
  const char* reason = kernels::AttentionSm90Rejects(params);
  if (reason != nullptr) return reason;
  if (WorkCapacity(settings) > std::numeric_limits<int32_t>::max()) {
    return "more than 2^31 - 1 tiles of work";
  }
  return "";
}

// What the copy engine and 16-byte stores need of a tensor, by name.
Status CheckAlignment(const char* name, size_t set, const RowsView& view, int32_t rows) {
  if (rows == 0) return {};
  // Built for errors alone: this runs once a tensor and layer.
  const auto invalid = [&](std::string got, const char* wanted) {
    return Invalid("run attention", "sm90, tensor set " + std::to_string(set) + ", " + name,
                   std::move(got), wanted);
  };
  constexpr char kWanted[] = "a multiple of 16 bytes, at least 256";
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % 16 != 0) {
    return invalid("a pointer " + std::to_string(address % 16) + " bytes past 16",
                   "a multiple of 16 bytes");
  }
  if (rows > 1 && (view.row_stride % 8 != 0 || view.row_stride < 128)) {
    return invalid("rows " + std::to_string(view.row_stride * 2) + " bytes apart", kWanted);
  }
  if (view.head_stride % 8 != 0 || view.head_stride < 128) {
    return invalid("heads " + std::to_string(view.head_stride * 2) + " bytes apart", kWanted);
  }
  return {};
}

// The row stride of a tensor with one row is used by nobody; the copy engine still wants a good
// one.
int64_t RowStride(const RowsView& view, int32_t rows) {
  return rows > 1 ? view.row_stride : int64_t{1} << 20;
}

Status FillSource(const TensorSet& set, size_t index, AttentionSm90Source& source) {
  SEGUE_RETURN_IF_ERROR(CheckAlignment("q", index, set.q, set.q_rows));
  SEGUE_RETURN_IF_ERROR(CheckAlignment("k", index, set.k, set.kv_rows));
  SEGUE_RETURN_IF_ERROR(CheckAlignment("v", index, set.v, set.kv_rows));
  SEGUE_RETURN_IF_ERROR(CheckAlignment("o", index, set.o, set.q_rows));
  source = {.q = set.q.data,
            .k = set.k.data,
            .v = set.v.data,
            .o = set.o.data,
            .q_row_stride = RowStride(set.q, set.q_rows),
            .k_row_stride = RowStride(set.k, set.kv_rows),
            .v_row_stride = RowStride(set.v, set.kv_rows),
            .o_row_stride = RowStride(set.o, set.q_rows),
            .q_rows = set.q_rows,
            .kv_rows = set.kv_rows,
            .q_head_stride = set.q.head_stride,
            .k_head_stride = set.k.head_stride,
            .v_head_stride = set.v.head_stride,
            .o_head_stride = set.o.head_stride};
  return {};
}

std::string DescribeError(const ScheduleHeader& header) {
  switch (header.error) {
    case kernels::kScheduleOk:
      return "";
    case kernels::kScheduleSequences:
      return "the number of sequences is negative or beyond max_sequences";
    case kernels::kScheduleSource:
      return "a segment names a tensor set that there is not";
    case kernels::kScheduleRows:
      return "a segment has negative rows, or rows outside its tensor set";
    case kernels::kScheduleWork:
    case kernels::kScheduleLse:
      return "the sequences have more query rows than max_query_rows";
    default:
      return "unknown: was the workspace prepared?";
  }
}

class Sm90Plan : public BackendPlan {
 public:
  explicit Sm90Plan(const PlanSettings& settings)
      : settings_(settings), shape_(ShapeOf(settings)), params_(ParamsOf(settings)) {
    params_.capacity = shape_.capacity;
  }

  // The schedule, then the counters: what is written once a step and what every call writes share
  // no cache line.
  int64_t workspace_bytes() const override { return CountersOffset() + kAlignment; }

  Status Prepare(void* workspace, void* stream) override {
    Forget();
    constexpr int64_t kEnough = 512 << 10;  // 64 sequences of 4096 rows and 12 heads: 393 KB
    SEGUE_RETURN_IF_ERROR(
        uploads_.Reserve(std::min(kernels::ScheduleBytes(shape_.capacity), kEnough)));
    // A header of zeros is a schedule without work.
    SEGUE_RETURN_IF_ERROR(SetToZero(workspace, sizeof(ScheduleHeader), stream));
    return SetToZero(static_cast<uint8_t*>(workspace) + CountersOffset(), kAlignment, stream);
  }

  Status SetLengths(Span<const SegmentRows> rows, void* workspace, void* stream) override {
    if (IsLast(rows, workspace, stream)) return {};
    const auto sequences = static_cast<int32_t>(rows.size() / settings_.max_segments);
    const ScheduleHeader& header = builder_.Measure(shape_, rows.data(), sequences);
    if (header.error != kernels::kScheduleOk) {
      return Invalid("set attention lengths", "sequence " + std::to_string(header.error_sequence),
                     DescribeError(header), "lengths within the settings");
    }
    Forget();
    upload_.LayOut(shape_.capacity, sequences, header.work, workspace);
    SEGUE_ASSIGN_OR_RETURN(void* memory, uploads_.Acquire(upload_.bytes()));
    builder_.Write(upload_.PartsIn(memory));
    SEGUE_RETURN_IF_ERROR(uploads_.Upload(upload_.copies(), stream));
    last_rows_.assign(rows.begin(), rows.end());
    last_workspace_ = workspace;
    last_stream_ = stream;
    return {};
  }

  Status Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace,
                 void* stream) override {
    Forget();
    SEGUE_ASSIGN_OR_RETURN(const bool capturing, IsCapturing(stream));
    // A graph may change the workspace whenever it is replayed, unseen by the plan.
    if (capturing) replayed_ = true;
    return kernels::RefreshScheduleSm90(shape_, rows, sequences, workspace, Stream::Cuda(stream));
  }

  Status Run(Span<const TensorSet> tensors, float* lse, int64_t lse_stride, void* workspace,
             void* stream) const override {
    AttentionSm90Params params = params_;
    for (size_t i = 0; i < tensors.size(); ++i) {
      SEGUE_RETURN_IF_ERROR(FillSource(tensors[i], i, params.sources[i]));
    }
    params.schedule = workspace;
    params.counters =
        reinterpret_cast<int32_t*>(static_cast<uint8_t*>(workspace) + CountersOffset());
    params.lse = lse;
    params.lse_stride = lse_stride;
    return kernels::AttentionSm90(params, Stream::Cuda(stream));
  }

  Result<LengthsReport> ReadReport(void* workspace, void* stream) const override {
    ScheduleHeader header{};
    SEGUE_RETURN_IF_ERROR(ReadBack(&header, workspace, sizeof(header), stream));
    if (header.error == kernels::kScheduleOk) return LengthsReport{};
    // Of the batch as a whole the header counts sequences.
    const bool whole =
        header.error == kernels::kScheduleWork || header.error == kernels::kScheduleLse;
    return LengthsReport{.error = header.error,
                         .sequence = whole ? 0 : header.error_sequence,
                         .description = DescribeError(header)};
  }

  Result<WorkList> Work(Span<const SegmentRows> rows) const override;

 private:
  int64_t CountersOffset() const { return AlignUp(kernels::ScheduleBytes(shape_.capacity)); }

  void Forget() { last_workspace_ = nullptr; }

  // Whether the workspace holds these lengths already, for whatever this stream does next.
  bool IsLast(Span<const SegmentRows> rows, void* workspace, void* stream) const {
    return !replayed_ && workspace == last_workspace_ && stream == last_stream_ &&
           rows.size() == last_rows_.size() &&
           (rows.empty() || std::memcmp(rows.data(), last_rows_.data(), rows.size_bytes()) == 0);
  }

  PlanSettings settings_;
  ScheduleShape shape_;
  AttentionSm90Params params_;
  kernels::ScheduleBuilder builder_;
  UploadRing uploads_;
  Sm90Upload upload_;
  std::vector<SegmentRows> last_rows_;
  void* last_workspace_ = nullptr;
  void* last_stream_ = nullptr;
  bool replayed_ = false;
};

Result<WorkList> Sm90Plan::Work(Span<const SegmentRows> rows) const {
  kernels::ScheduleBuilder builder;
  const auto sequences = static_cast<int32_t>(rows.size() / settings_.max_segments);
  const ScheduleHeader header = builder.Measure(shape_, rows.data(), sequences);
  if (header.error != kernels::kScheduleOk) {
    return Invalid("list attention work", "rows", DescribeError(header),
                   "lengths within the settings");
  }
  ScheduleHeader written{};
  std::vector<kernels::SequenceRecord> records(sequences);
  std::vector<kernels::SegmentRecord> segments(rows.size());
  std::vector<kernels::WorkItem> work(header.work);
  builder.Write({&written, records.data(), segments.data(), work.data()});

  WorkList list{.query_rows = kernels::kQueryTile,
                .key_rows = kernels::KeyTileOf(shape_.causal),
                .dynamic = header.dynamic != 0};
  list.workers.resize(shape_.ctas);
  int64_t tiles = 0;
  for (int32_t i = 0; i < sequences; ++i) {
    const SegmentRows* own = rows.data() + int64_t{i} * settings_.max_segments;
    tiles += kernels::SumSequence(own, shape_).query_tiles * shape_.q_heads;
  }
  list.halves = 2 * (header.work - tiles);
  for (const kernels::WorkItem& item : work) {
    const kernels::SequenceRecord& sequence = records[item.sequence];
    const kernels::SegmentRecord* own = &segments[int64_t{item.sequence} * settings_.max_segments];
    const int32_t query_rows = item.head_and_rows % 256;
    const int32_t query_begin = own[item.segment].q_position + item.row;
    int32_t keys = sequence.key_extent;
    if (query_rows == 0) {
      keys = 0;  // the second half of a tile that has no such rows
    } else if (shape_.causal != 0) {
      const int32_t seen = sequence.kv_rows - sequence.q_rows + query_begin + query_rows;
      keys = 0;
      for (int32_t s = 0; s < settings_.max_segments; ++s) {
        keys = kernels::KeyLimit(own[s], seen, keys);
      }
    }
    list.tiles.push_back({.sequence = item.sequence,
                          .head = item.head_and_rows / 256,
                          .query_begin = query_begin,
                          .query_rows = query_rows,
                          .key_tiles = kernels::DivideUp(keys, list.key_rows)});
  }
  return list;
}

}  // namespace

constinit const PlanBackend kSm90PlanBackend = {
    "sm90", Place::kCuda, RejectsSm90,
    [](const PlanSettings& settings) -> Result<std::unique_ptr<BackendPlan>> {
      return std::unique_ptr<BackendPlan>(std::make_unique<Sm90Plan>(settings));
    }};

}  // namespace segue::attention
