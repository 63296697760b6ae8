#include "gpu/plan_rig.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace segue::attention {
namespace {

constexpr int32_t kQHeads = 4;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeads = kQHeads + 2 * kKvHeads;
constexpr int32_t kSourceRows[PlanRig::kSegments] = {700, 2600, 500};
constexpr uint16_t kCanary = 0x7fc1;
constexpr float kUnwritten = 12345.0f;

std::string Message(const Status& status) { return status.ok() ? "" : status.error().Message(); }

}  // namespace

PlanRig::PlanRig(const RigKind& kind, bool causal, uint32_t seed, int copies)
    : kind_(kind), causal_(causal), sources_(kSegments) {
  std::mt19937 random(seed);
  for (int32_t s = 0; s < kSegments; ++s) {
    Source& source = sources_[s];
    source.rows = kSourceRows[s];
    lse_stride_ += source.rows;
    source.fused.resize(int64_t{source.rows} * kHeads * kind_.head_dim);
    for (uint16_t& value : source.fused) {
      value = FloatToBF16(static_cast<float>(random() % 4001) / 1000.0f - 2.0f);
    }
    source.device = std::make_unique<kernels::GpuMemory>(source.fused.size() * 2);
    source.device->Write(source.fused.data());
    for (int i = 0; i < copies; ++i) {
      source.outputs.push_back(std::make_unique<kernels::GpuMemory>(int64_t{source.rows} * kQHeads *
                                                                    kind_.head_dim * 2));
    }
  }
  lse_ = std::make_unique<kernels::GpuMemory>(kQHeads * lse_stride_ * 4);
  Clear();
}

PlanSettings PlanRig::Settings() const {
  PlanSettings settings;
  settings.options = {.q_heads = kQHeads,
                      .kv_heads = kKvHeads,
                      .head_dim = kind_.head_dim,
                      .softmax_scale = 0.0884f,
                      .causal = causal_,
                      .element_type = ElementType::kBFloat16};
  settings.place = Place::kCuda;
  settings.max_sequences = kSequences;
  settings.max_segments = kSegments;
  for (const Source& source : sources_) settings.tensors.push_back({source.rows, source.rows});
  settings.device_lengths = true;
  settings.wants_lse = true;
  settings.backend = kind_.backend;
  return settings;
}

std::vector<TensorSet> PlanRig::Sets(int copy) const {
  std::vector<TensorSet> sets;
  for (const Source& source : sources_) {
    auto* q = static_cast<uint16_t*>(source.device->data());
    const int64_t stride = int64_t{kHeads} * kind_.head_dim;
    sets.push_back({.q = {q, stride},
                    .k = {q + kQHeads * kind_.head_dim, stride},
                    .v = {q + (kQHeads + kKvHeads) * kind_.head_dim, stride},
                    .o = {source.outputs[copy]->data(), int64_t{kQHeads} * kind_.head_dim},
                    .q_rows = source.rows,
                    .kv_rows = source.rows});
  }
  return sets;
}

std::vector<TensorSet> PlanRig::TransposedSets() {
  std::vector<TensorSet> sets;
  for (Source& source : sources_) {
    std::vector<uint16_t> turned(source.fused.size());
    for (int64_t row = 0; row < source.rows; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) {
        std::copy_n(&source.fused[(row * kHeads + head) * kind_.head_dim], kind_.head_dim,
                    &turned[(head * source.rows + row) * kind_.head_dim]);
      }
    }
    source.transposed = std::make_unique<kernels::GpuMemory>(turned.size() * 2);
    source.transposed->Write(turned.data());
    const std::vector<uint16_t> canaries(int64_t{source.rows} * kQHeads * kind_.head_dim, kCanary);
    source.transposed_output = std::make_unique<kernels::GpuMemory>(canaries.size() * 2);
    source.transposed_output->Write(canaries.data());
    auto* q = static_cast<uint16_t*>(source.transposed->data());
    const int64_t head_stride = int64_t{source.rows} * kind_.head_dim;
    sets.push_back({.q = {q, kind_.head_dim, head_stride},
                    .k = {q + kQHeads * head_stride, kind_.head_dim, head_stride},
                    .v = {q + (kQHeads + kKvHeads) * head_stride, kind_.head_dim, head_stride},
                    .o = {source.transposed_output->data(), kind_.head_dim, head_stride},
                    .q_rows = source.rows,
                    .kv_rows = source.rows});
  }
  cudaDeviceSynchronize();
  return sets;
}

Rows PlanRig::RandomBatch(std::mt19937& random, int32_t sequences, int32_t reserved) const {
  constexpr int32_t kEdges[] = {0, 0, 1, 8, 9, 33, 64, 65, 127, 128, 129, 175, 176, 177, 190};
  Rows rows(int64_t{sequences} * kSegments);
  std::vector<int32_t> next(kSegments, reserved);
  for (SegmentRows& segment : rows) {
    const auto source = static_cast<int32_t>(random() % kSegments);
    const int32_t q = kEdges[random() % std::size(kEdges)];
    const int32_t kv = random() % 3 == 0 ? kEdges[random() % std::size(kEdges)] : q;
    if (next[source] + std::max(q, kv) > kSourceRows[source]) continue;
    segment = {source, next[source], q, next[source], kv};
    next[source] += std::max(q, kv) + static_cast<int32_t>(random() % 4);
  }
  return rows;
}

void PlanRig::Clear() {
  cudaDeviceSynchronize();
  for (Source& source : sources_) {
    const std::vector<uint16_t> canaries(int64_t{source.rows} * kQHeads * kind_.head_dim, kCanary);
    for (const auto& output : source.outputs) output->Write(canaries.data());
  }
  const std::vector<float> unwritten(kQHeads * lse_stride_, kUnwritten);
  lse_->Write(unwritten.data());
  cudaDeviceSynchronize();
}

std::vector<uint16_t> PlanRig::Outputs(int copy) const {
  cudaDeviceSynchronize();
  std::vector<uint16_t> all;
  for (const Source& source : sources_) {
    std::vector<uint16_t> one(int64_t{source.rows} * kQHeads * kind_.head_dim);
    source.outputs[copy]->Read(one.data());
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::vector<uint16_t> PlanRig::TransposedOutputs() const {
  cudaDeviceSynchronize();
  std::vector<uint16_t> all;
  for (const Source& source : sources_) {
    std::vector<uint16_t> one(int64_t{source.rows} * kQHeads * kind_.head_dim);
    source.transposed_output->Read(one.data());
    for (int64_t row = 0; row < source.rows; ++row) {
      for (int64_t head = 0; head < kQHeads; ++head) {
        const auto begin = one.begin() + (head * source.rows + row) * kind_.head_dim;
        all.insert(all.end(), begin, begin + kind_.head_dim);
      }
    }
  }
  return all;
}

std::vector<float> PlanRig::Lse() const {
  cudaDeviceSynchronize();
  std::vector<float> lse(kQHeads * lse_stride_);
  lse_->Read(lse.data());
  return lse;
}

bool PlanRig::Untouched(int copy) const {
  const std::vector<uint16_t> outputs = Outputs(copy);
  const std::vector<float> lse = Lse();
  return std::all_of(outputs.begin(), outputs.end(), [](uint16_t v) { return v == kCanary; }) &&
         std::all_of(lse.begin(), lse.end(), [](float v) { return v == kUnwritten; });
}

float PlanRig::Value(int32_t source, int32_t row, int32_t head, int32_t dim) const {
  return BF16ToFloat(sources_[source].fused[(int64_t{row} * kHeads + head) * kind_.head_dim + dim]);
}

int64_t PlanRig::OutputOffset(int32_t source, int32_t row) const {
  int64_t offset = row;
  for (int32_t s = 0; s < source; ++s) offset += sources_[s].rows;
  return offset * kQHeads * kind_.head_dim;
}

// Element `dim` of head `head` of row `row` of a segment, in float64.
double PlanRig::Expected(const Rows& rows, size_t segment, int32_t row, int32_t head,
                         int32_t dim) const {
  const size_t first = segment / kSegments * kSegments;
  const int32_t kv_head = head / (kQHeads / kKvHeads);
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t position = row;
  for (size_t i = first; i < first + kSegments; ++i) {
    if (i < segment) position += rows[i].q_rows;
    queries += rows[i].q_rows;
    keys += rows[i].kv_rows;
  }
  int64_t seen = causal_ ? std::max<int64_t>(keys - queries + 1 + position, 0) : keys;
  std::vector<double> scores;
  std::vector<double> values;
  for (size_t i = first; i < first + kSegments; ++i) {
    for (int32_t k = 0; k < rows[i].kv_rows && seen > 0; ++k, --seen) {
      double score = 0.0;
      for (int32_t d = 0; d < kind_.head_dim; ++d) {
        score += double{Value(rows[segment].source, rows[segment].q_begin + row, head, d)} *
                 Value(rows[i].source, rows[i].kv_begin + k, kQHeads + kv_head, d);
      }
      scores.push_back(score * 0.0884f);
      values.push_back(
          Value(rows[i].source, rows[i].kv_begin + k, kQHeads + kKvHeads + kv_head, dim));
    }
  }
  if (scores.empty()) return 0.0;
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  double value = 0.0;
  for (size_t k = 0; k < scores.size(); ++k) {
    const double weight = std::exp(scores[k] - largest);
    sum += weight;
    value += weight * values[k];
  }
  return value / sum;
}

std::string PlanRig::CheckSome(const Rows& rows, const std::vector<uint16_t>& outputs) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const int32_t row : {0, rows[i].q_rows / 2, rows[i].q_rows - 1}) {
      if (row < 0 || row >= rows[i].q_rows) continue;
      const auto head = static_cast<int32_t>(i % kQHeads);
      const auto dim = static_cast<int32_t>((17 * i + row) % kind_.head_dim);
      const double expected = Expected(rows, i, row, head, dim);
      const float got = BF16ToFloat(outputs[OutputOffset(rows[i].source, rows[i].q_begin + row) +
                                            int64_t{head} * kind_.head_dim + dim]);
      // Values are at most 2: weights and the output rounded to 8 bits move it by at most 2^-7 x 2.
      if (!(std::abs(got - expected) <= 0.0157)) {
        return "segment " + std::to_string(i) + " row " + std::to_string(row) + " head " +
               std::to_string(head) + ": got " + std::to_string(got) + ", wanted " +
               std::to_string(expected);
      }
    }
  }
  return "";
}

std::vector<uint16_t> PlanRig::OutputsOf(const Rows& rows, int32_t index,
                                         const std::vector<uint16_t>& outputs) const {
  std::vector<uint16_t> own;
  for (int32_t s = 0; s < kSegments; ++s) {
    const SegmentRows& segment = rows[index * kSegments + s];
    const auto begin = outputs.begin() + OutputOffset(segment.source, segment.q_begin);
    own.insert(own.end(), begin, begin + int64_t{segment.q_rows} * kQHeads * kind_.head_dim);
  }
  return own;
}

GpuPlan::GpuPlan(const PlanSettings& settings) {
  Result<Plan> plan = Plan::Create(settings);
  if (!plan) {
    failure_ = plan.error().Message();
    return;
  }
  plan_ = std::make_unique<Plan>(std::move(*plan));
  workspace_ = std::make_unique<kernels::GpuMemory>(plan_->workspace_bytes());
  // What Prepare leaves alone must not matter.
  cudaMemset(workspace_->data(), 0xa5, static_cast<size_t>(plan_->workspace_bytes()));
  rows_ = std::make_unique<kernels::GpuMemory>(
      int64_t{settings.max_sequences} * settings.max_segments * int64_t{sizeof(SegmentRows)});
  count_ = std::make_unique<kernels::GpuMemory>(4);
  cudaDeviceSynchronize();
  failure_ = Message(plan_->Prepare(workspace_->data(), nullptr));
  cudaDeviceSynchronize();
}

std::string GpuPlan::SetLengths(const Rows& rows, void* stream) {
  return Message(plan_->SetLengths(rows, workspace(), stream));
}

void GpuPlan::WriteDeviceLengths(const Rows& rows, int32_t sequences) {
  cudaDeviceSynchronize();
  Rows whole = rows;
  whole.resize(static_cast<size_t>(rows_->bytes()) / sizeof(SegmentRows),
               SegmentRows{-7, -7, -7, -7, -7});  // past the count: never read
  rows_->Write(whole.data());
  const int32_t count = sequences >= 0 || rows.empty()
                            ? std::max(sequences, 0)
                            : static_cast<int32_t>(rows.size()) / plan_->settings().max_segments;
  count_->Write(&count);
  cudaDeviceSynchronize();
}

std::string GpuPlan::Refresh(void* stream) {
  return Message(plan_->Refresh(static_cast<const SegmentRows*>(rows_->data()),
                                static_cast<const int32_t*>(count_->data()), workspace(), stream));
}

std::string GpuPlan::Run(const PlanRig& rig, void* stream, int copy, bool lse) {
  return Message(
      plan_->Run(rig.Sets(copy), lse ? rig.lse() : nullptr, rig.lse_stride(), workspace(), stream));
}

std::string GpuPlan::Run(std::vector<TensorSet> sets, void* stream) {
  return Message(plan_->Run(sets, nullptr, 0, workspace(), stream));
}

}  // namespace segue::attention
