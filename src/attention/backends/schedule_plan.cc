#include "attention/backends/schedule_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/plan_check.h"
#include "device/gpu.h"
#include "device/stream.h"
#include "kernels/refresh_schedule.h"

namespace segue::attention {
namespace {

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

}  // namespace

std::string SchedulePlan::Rejects(const PlanSettings& settings, const char* wanted) {
  const int32_t capability = settings.gpu->compute_capability;
  if (capability != 90) {
    return "compute capability " + std::to_string(capability / 10) + "." +
           std::to_string(capability % 10) + ", " + wanted;
  }
  if (settings.tensors.size() > kernels::kMaxSources) {
    return std::to_string(settings.tensors.size()) + " tensor sets, more than 8";
  }
  if (WorkCapacity(settings) > std::numeric_limits<int32_t>::max()) {
    return "more than 2^31 - 1 tiles of work";
  }
  return "";
}

void SchedulePlan::Fill(const PlanSettings& settings, kernels::AttentionCall& call) {
  const Options& options = settings.options;
  call.source_count = std::max(1, static_cast<int32_t>(settings.tensors.size()));
  call.capacity = {settings.max_sequences, settings.max_segments, 0};
  call.q_heads = options.q_heads;
  call.kv_heads = options.kv_heads;
  call.head_dim = options.head_dim;
  call.softmax_scale = options.softmax_scale;
  call.causal = options.causal;
  call.element_type = options.element_type;
}

SchedulePlan::SchedulePlan(const PlanSettings& settings)
    : settings_(settings), shape_(ShapeOf(settings)) {}

int64_t SchedulePlan::CountersOffset() const {
  return AlignUp(kernels::ScheduleBytes(shape_.capacity));
}

Status SchedulePlan::Prepare(void* workspace, void* stream) {
  Forget();
  constexpr int64_t kEnough = 512 << 10;  // 64 sequences of 4096 rows and 12 heads: 393 KB
  SEGUE_RETURN_IF_ERROR(
      uploads_.Reserve(std::min(kernels::ScheduleBytes(shape_.capacity), kEnough)));
  // A header of zeros is a schedule without work.
  SEGUE_RETURN_IF_ERROR(SetToZero(workspace, sizeof(ScheduleHeader), stream));
  return SetToZero(CountersIn(workspace), kCounterBytes, stream);
}

Status SchedulePlan::SetLengths(Span<const SegmentRows> rows, void* workspace, void* stream) {
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

Status SchedulePlan::Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace,
                             void* stream) {
  Forget();
  SEGUE_ASSIGN_OR_RETURN(const bool capturing, IsCapturing(stream));
  // A graph may change the workspace whenever it is replayed, unseen by the plan.
  if (capturing) replayed_ = true;
  return kernels::RefreshSchedule(shape_, rows, sequences, workspace, Stream::Cuda(stream));
}

Result<LengthsReport> SchedulePlan::ReadReport(void* workspace, void* stream) const {
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

Result<SchedulePlan::HostSchedule> SchedulePlan::Build(Span<const SegmentRows> rows) const {
  kernels::ScheduleBuilder builder;
  const auto sequences = static_cast<int32_t>(rows.size() / settings_.max_segments);
  const ScheduleHeader header = builder.Measure(shape_, rows.data(), sequences);
  if (header.error != kernels::kScheduleOk) {
    return Invalid("list attention work", "rows", DescribeError(header),
                   "lengths within the settings");
  }
  HostSchedule schedule;
  schedule.sequences.resize(sequences);
  schedule.segments.resize(rows.size());
  schedule.work.resize(header.work);
  builder.Write({&schedule.header, schedule.sequences.data(), schedule.segments.data(),
                 schedule.work.data()});
  return schedule;
}

bool SchedulePlan::IsLast(Span<const SegmentRows> rows, void* workspace, void* stream) const {
  return !replayed_ && workspace == last_workspace_ && stream == last_stream_ &&
         rows.size() == last_rows_.size() &&
         (rows.empty() || std::memcmp(rows.data(), last_rows_.data(), rows.size_bytes()) == 0);
}

}  // namespace segue::attention
