#include "bench/gpu_operands.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace segue::bench {
namespace {

constexpr int64_t kRotatingBytes = 160 << 20;
constexpr int64_t kElement = 2;  // bytes of a bfloat16

Error Wrong(const std::string& name, const std::string& got, const std::string& wanted) {
  return {.code = ErrorCode::kInternal,
          .operation = "verify attention",
          .argument = name,
          .got = got,
          .wanted = wanted};
}

}  // namespace

int64_t RotatingSets(int64_t bytes_of_one) {
  return std::clamp<int64_t>((kRotatingBytes + bytes_of_one - 1) / bytes_of_one, 1, 64);
}

int64_t AttentionOperands::FusedWidth() const {
  return int64_t{shape_.heads + 2 * shape_.kv_heads} * shape_.head_dim;
}
int64_t AttentionOperands::OutWidth() const { return int64_t{shape_.heads} * shape_.head_dim; }

Result<AttentionOperands> AttentionOperands::Create(const AttentionCase& shape,
                                                    const GpuStream& stream) {
  AttentionOperands operands;
  operands.shape_ = shape;
  const int64_t row_bytes = (operands.FusedWidth() + operands.OutWidth()) * kElement;
  const int64_t sets = RotatingSets(shape.TotalQueryRows() * row_bytes);
  for (int64_t i = 0; i < sets; ++i) {
    Set set;
    for (size_t t = 0; t < shape.tensor_rows.size(); ++t) {
      const int64_t rows = shape.tensor_rows[t];
      Tensor tensor;
      SEGUE_ASSIGN_OR_RETURN(tensor.fused,
                             GpuBuffer::Allocate(rows * operands.FusedWidth() * kElement));
      SEGUE_ASSIGN_OR_RETURN(tensor.out,
                             GpuBuffer::Allocate(rows * operands.OutWidth() * kElement));
      SEGUE_RETURN_IF_ERROR(FillNormal(tensor.fused.data(), rows * operands.FusedWidth(),
                                       static_cast<uint64_t>(100 * i) + t, stream));
      SEGUE_RETURN_IF_ERROR(FillBytes(tensor.out.data(), 0xff, tensor.out.bytes()));
      set.push_back(std::move(tensor));
    }
    operands.sets_.push_back(std::move(set));
  }
  SEGUE_RETURN_IF_ERROR(operands.MakeSchedule(stream));
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  return operands;
}

Status AttentionOperands::MakeSchedule(const GpuStream& stream) {
  SEGUE_ASSIGN_OR_RETURN(schedule_shape_.ctas, kernels::AttentionSm90Ctas());
  int64_t rows = 0;
  for (size_t t = 0; t < shape_.tensor_rows.size(); ++t) {
    schedule_shape_.source_rows[t] = {shape_.tensor_rows[t], shape_.tensor_rows[t]};
    rows += shape_.tensor_rows[t];
  }
  schedule_shape_.sources = static_cast<int32_t>(shape_.tensor_rows.size());
  schedule_shape_.q_heads = shape_.heads;
  schedule_shape_.causal = shape_.causal ? 1 : 0;
  schedule_shape_.lse_rows = std::numeric_limits<int32_t>::max();
  schedule_shape_.capacity = {
      .sequences = shape_.sequences(),
      .segments = shape_.segments,
      .work = static_cast<int32_t>(kernels::MaxWork(rows, static_cast<int64_t>(shape_.rows.size()),
                                                    shape_.heads, schedule_shape_.ctas))};
  const auto row_bytes = static_cast<int64_t>(shape_.rows.size() * sizeof(shape_.rows[0]));
  SEGUE_ASSIGN_OR_RETURN(rows_, GpuBuffer::Allocate(row_bytes));
  SEGUE_ASSIGN_OR_RETURN(count_, GpuBuffer::Allocate(sizeof(int32_t)));
  SEGUE_ASSIGN_OR_RETURN(counters_, GpuBuffer::Allocate(2 * sizeof(int32_t)));
  SEGUE_ASSIGN_OR_RETURN(schedule_,
                         GpuBuffer::Allocate(kernels::ScheduleBytes(schedule_shape_.capacity)));
  const int32_t count = shape_.sequences();
  SEGUE_RETURN_IF_ERROR(Upload(rows_.data(), shape_.rows.data(), row_bytes));
  SEGUE_RETURN_IF_ERROR(Upload(count_.data(), &count, sizeof(count)));
  SEGUE_RETURN_IF_ERROR(FillBytes(counters_.data(), 0, counters_.bytes()));
  SEGUE_RETURN_IF_ERROR(Refresh().enqueue(stream.get(), 0));
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  kernels::ScheduleHeader header{};
  SEGUE_RETURN_IF_ERROR(Download(&header, schedule_.data(), sizeof(header)));
  if (header.error == kernels::kScheduleOk) return {};
  return Wrong("the schedule", "error " + std::to_string(header.error), "none");
}

kernels::AttentionSm90Params AttentionOperands::Params(int64_t set) const {
  kernels::AttentionSm90Params params;
  params.source_count = schedule_shape_.sources;
  for (int32_t t = 0; t < params.source_count; ++t) {
    const Tensor& tensor = sets_[set][t];
    const auto* fused = static_cast<const uint16_t*>(tensor.fused.data());
    params.sources[t] = {.q = fused,
                         .k = fused + OutWidth(),
                         .v = fused + OutWidth() + int64_t{shape_.kv_heads} * shape_.head_dim,
                         .o = tensor.out.data(),
                         .q_row_stride = FusedWidth(),
                         .k_row_stride = FusedWidth(),
                         .v_row_stride = FusedWidth(),
                         .o_row_stride = OutWidth(),
                         .q_rows = shape_.tensor_rows[t],
                         .kv_rows = shape_.tensor_rows[t]};
  }
  params.schedule = schedule_.data();
  params.capacity = schedule_shape_.capacity;
  params.counters = static_cast<int32_t*>(counters_.data());
  params.q_heads = shape_.heads;
  params.kv_heads = shape_.kv_heads;
  params.head_dim = shape_.head_dim;
  params.ctas = schedule_shape_.ctas;
  params.softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
  params.causal = shape_.causal;
  params.element_type = attention::ElementType::kBFloat16;
  return params;
}

GpuContender AttentionOperands::Attention() {
  return {.name = "segue",
          .version = "",
          .rotation = static_cast<int64_t>(sets_.size()),
          .enqueue = [this](void* stream, int64_t call) {
            return kernels::AttentionSm90(Params(call), Stream::Cuda(stream));
          }};
}

GpuContender AttentionOperands::Refresh() {
  return {.name = "segue", .version = "", .rotation = 1, .enqueue = [this](void* stream, int64_t) {
            return kernels::RefreshSchedule(
                schedule_shape_, static_cast<const attention::SegmentRows*>(rows_.data()),
                static_cast<const int32_t*>(count_.data()), schedule_.data(), Stream::Cuda(stream));
          }};
}

Status AttentionOperands::Verify(const std::string& name, int threads, const GpuStream& stream) {
  const GpuContender attention = Attention();
  for (int64_t set = 0; set < attention.rotation; ++set) {
    SEGUE_RETURN_IF_ERROR(attention.enqueue(stream.get(), set));
  }
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  for (const Set& set : sets_) SEGUE_RETURN_IF_ERROR(CheckCoverage(set, name, stream));
  return CheckAttention(Checked(sets_[0]), {.name = name,
                                            .heads = shape_.heads,
                                            .kv_heads = shape_.kv_heads,
                                            .head_dim = shape_.head_dim,
                                            .softmax_scale = Params(0).softmax_scale,
                                            .causal = shape_.causal,
                                            .threads = threads});
}

// Outputs were NaN before: those of sequences are finite now, all others are NaN still.
Status AttentionOperands::CheckCoverage(const Set& set, const std::string& name,
                                        const GpuStream& stream) const {
  for (size_t t = 0; t < set.size(); ++t) {
    const int64_t rows = shape_.tensor_rows[t];
    int64_t used = 0;
    for (const attention::SegmentRows& segment : shape_.rows) {
      if (segment.source != static_cast<int32_t>(t)) continue;
      const auto* first =
          static_cast<const uint16_t*>(set[t].out.data()) + segment.q_begin * OutWidth();
      SEGUE_ASSIGN_OR_RETURN(const int64_t bad,
                             CountNonFinite(first, segment.q_rows, OutWidth(), OutWidth(), stream));
      if (bad != 0) {
        return Wrong(name, std::to_string(bad) + " outputs of a segment that are not finite",
                     "finite outputs in every row");
      }
      used += segment.q_rows;
    }
    SEGUE_ASSIGN_OR_RETURN(const int64_t left,
                           CountNonFinite(set[t].out.data(), rows, OutWidth(), OutWidth(), stream));
    if (left != (rows - used) * OutWidth()) {
      return Wrong(name, "a row of no sequence that was written", "rows left alone");
    }
  }
  return {};
}

std::vector<CheckedSequence> AttentionOperands::Checked(const Set& set) const {
  std::vector<CheckedSequence> sequences;
  for (int32_t i = 0; i < shape_.sequences(); ++i) {
    CheckedSequence sequence;
    for (int32_t s = 0; s < shape_.segments; ++s) {
      const attention::SegmentRows& rows = shape_.rows[i * shape_.segments + s];
      const Tensor& tensor = set[rows.source];
      const auto* fused = static_cast<const uint16_t*>(tensor.fused.data());
      const uint16_t* kv = fused + rows.kv_begin * FusedWidth() + OutWidth();
      sequence.push_back(
          {.q = fused + rows.q_begin * FusedWidth(),
           .k = kv,
           .v = kv + int64_t{shape_.kv_heads} * shape_.head_dim,
           .o = static_cast<const uint16_t*>(tensor.out.data()) + rows.q_begin * OutWidth(),
           .q_row_stride = FusedWidth(),
           .kv_row_stride = FusedWidth(),
           .o_row_stride = OutWidth(),
           .q_rows = rows.q_rows,
           .kv_rows = rows.kv_rows});
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace segue::bench
