// Plans of the plain CUDA kernel: what neither our kernel for Hopper GPUs nor the library serves.
#include <algorithm>
#include <memory>
#include <string>

#include "attention/backends/schedule_plan.h"
#include "device/stream.h"
#include "kernels/attention_cuda.h"

namespace segue::attention {
namespace {

using kernels::AttentionCudaParams;
using kernels::AttentionCudaTiling;

// Parameters of a call but for what differs between calls.
AttentionCudaParams ParamsOf(const PlanSettings& settings) {
  AttentionCudaParams params;
  SchedulePlan::Fill(settings, params);
  params.multiprocessors = settings.gpu->multiprocessors;
  return params;
}

std::string RejectsCuda(const PlanSettings& settings) {
  // The source asks for 8.0; what is built is code for 9.0 alone.
  std::string reason = SchedulePlan::Rejects(settings, "and this build has code for 9.0");
  if (!reason.empty()) return reason;
  AttentionCudaParams params = ParamsOf(settings);
  static int32_t somewhere = 0;  // pointers are checked with each call
  params.schedule = &somewhere;
  const char* text = kernels::AttentionCudaRejects(params);
  return text != nullptr ? text : "";
}

class CudaPlan : public SchedulePlan {
 public:
  explicit CudaPlan(const PlanSettings& settings)
      : SchedulePlan(settings), params_(ParamsOf(settings)) {
    params_.capacity = shape().capacity;
  }

  Status Run(Span<const TensorSet> tensors, float* lse, int64_t lse_stride, void* workspace,
             void* stream) const override {
    AttentionCudaParams params = params_;
    std::copy(tensors.begin(), tensors.end(), params.sources);
    params.schedule = workspace;
    params.lse = lse;
    params.lse_stride = lse_stride;
    return kernels::AttentionCuda(params, Stream::Cuda(stream));
  }

  Result<WorkList> Work(Span<const SegmentRows> rows) const override;

 private:
  AttentionCudaParams params_;
};

// An entry of the schedule is two tiles, the second empty where the first holds all its rows.
Result<WorkList> CudaPlan::Work(Span<const SegmentRows> rows) const {
  SEGUE_ASSIGN_OR_RETURN(const HostSchedule schedule, Build(rows));
  const AttentionCudaTiling tiling = kernels::AttentionCudaTilingOf(settings().options.head_dim);
  WorkList list{.query_rows = tiling.query_rows, .key_rows = tiling.key_rows};
  list.workers.resize(kernels::AttentionCudaCtas(params_));
  for (const kernels::WorkItem& item : schedule.work) {
    const kernels::SequenceRecord& sequence = schedule.sequences[item.sequence];
    const kernels::SegmentRecord* own =
        &schedule.segments[int64_t{item.sequence} * settings().max_segments];
    for (int32_t first = 0; first < kernels::kQueryTile; first += tiling.query_rows) {
      const int32_t query_rows = std::clamp(item.head_and_rows % 256 - first, 0, tiling.query_rows);
      const int32_t query_begin = own[item.segment].q_position + item.row + first;
      int32_t keys = query_rows > 0 ? sequence.kv_rows : 0;
      if (keys > 0 && shape().causal != 0) {
        const int32_t seen = sequence.kv_rows - sequence.q_rows + query_begin + query_rows;
        keys = std::clamp(seen, 0, sequence.kv_rows);
      }
      list.tiles.push_back({.sequence = item.sequence,
                            .head = item.head_and_rows / 256,
                            .query_begin = query_begin,
                            .query_rows = query_rows,
                            .key_tiles = kernels::DivideUp(keys, list.key_rows)});
    }
  }
  return list;
}

}  // namespace

constinit const PlanBackend kCudaPlanBackend = {
    "cuda", Place::kCuda, RejectsCuda,
    [](const PlanSettings& settings) -> Result<std::unique_ptr<BackendPlan>> {
      return std::unique_ptr<BackendPlan>(std::make_unique<CudaPlan>(settings));
    }};

}  // namespace segue::attention
