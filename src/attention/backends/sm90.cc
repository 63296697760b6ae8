// Plans of our kernel for Hopper GPUs.
#include <memory>
#include <string>
#include <utility>

#include "attention/backends/schedule_plan.h"
#include "attention/plan_check.h"
#include "device/stream.h"
#include "kernels/attention_sm90.h"

namespace segue::attention {
namespace {

using kernels::AttentionSm90Params;
using kernels::AttentionSm90Source;

// Parameters of a call but for what differs between calls.
AttentionSm90Params ParamsOf(const PlanSettings& settings) {
  AttentionSm90Params params;
  SchedulePlan::Fill(settings, params);
  params.ctas = settings.gpu->multiprocessors;
  return params;
}

std::string RejectsSm90(const PlanSettings& settings) {
  std::string reason = SchedulePlan::Rejects(settings, "not 9.0");
  if (!reason.empty()) return reason;
  AttentionSm90Params params = ParamsOf(settings);
  alignas(16) static int32_t somewhere[4];  // pointers are checked with each call
  params.schedule = somewhere;
  params.counters = somewhere;
  const char* text = kernels::AttentionSm90Rejects(params);
  return text != nullptr ? text : "";
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

class Sm90Plan : public SchedulePlan {
 public:
  explicit Sm90Plan(const PlanSettings& settings)
      : SchedulePlan(settings), params_(ParamsOf(settings)) {
    params_.capacity = shape().capacity;
  }

  Status Run(Span<const TensorSet> tensors, float* lse, int64_t lse_stride, void* workspace,
             void* stream) const override {
    AttentionSm90Params params = params_;
    for (size_t i = 0; i < tensors.size(); ++i) {
      SEGUE_RETURN_IF_ERROR(FillSource(tensors[i], i, params.sources[i]));
    }
    params.schedule = workspace;
    params.counters = CountersIn(workspace);
    params.lse = lse;
    params.lse_stride = lse_stride;
    return kernels::AttentionSm90(params, Stream::Cuda(stream));
  }

  Result<WorkList> Work(Span<const SegmentRows> rows) const override;

 private:
  AttentionSm90Params params_;
};

Result<WorkList> Sm90Plan::Work(Span<const SegmentRows> rows) const {
  SEGUE_ASSIGN_OR_RETURN(const HostSchedule schedule, Build(rows));
  const int32_t segments = settings().max_segments;
  WorkList list{.query_rows = kernels::kQueryTile,
                .key_rows = kernels::KeyTileOf(shape().causal),
                .dynamic = schedule.header.dynamic != 0};
  list.workers.resize(shape().ctas);
  int64_t tiles = 0;
  for (size_t i = 0; i < rows.size(); i += segments) {
    tiles += kernels::SumSequence(rows.data() + i, shape()).query_tiles * shape().q_heads;
  }
  list.halves = 2 * (schedule.header.work - tiles);
  for (const kernels::WorkItem& item : schedule.work) {
    const kernels::SequenceRecord& sequence = schedule.sequences[item.sequence];
    const kernels::SegmentRecord* own = &schedule.segments[int64_t{item.sequence} * segments];
    const int32_t query_rows = item.head_and_rows % 256;
    const int32_t query_begin = own[item.segment].q_position + item.row;
    int32_t keys = sequence.key_extent;
    if (query_rows == 0) {
      keys = 0;  // the second half of a tile that has no such rows
    } else if (shape().causal != 0) {
      const int32_t seen = sequence.kv_rows - sequence.q_rows + query_begin + query_rows;
      keys = 0;
      for (int32_t s = 0; s < segments; ++s) keys = kernels::KeyLimit(own[s], seen, keys);
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
