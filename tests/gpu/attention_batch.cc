#include "gpu/attention_batch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace segue::kernels {
namespace {

constexpr int32_t kHeadDim = 128;
constexpr int32_t kGap = 5;
constexpr uint16_t kCanary = 0x7fc1;  // a NaN that no kernel writes
constexpr float kUnwritten = 12345.0f;

}  // namespace

GpuMemory::GpuMemory(int64_t bytes) : bytes_(bytes) {
  cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 16)));
}
GpuMemory::~GpuMemory() { cudaFree(data_); }
void GpuMemory::Write(const void* from) {
  cudaMemcpy(data_, from, static_cast<size_t>(bytes_), cudaMemcpyHostToDevice);
}
void GpuMemory::Read(void* to) const {
  cudaMemcpy(to, data_, static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost);
}

std::string NoGpuReason() {
  const Result<int32_t> ctas = AttentionSm90Ctas();
  return ctas ? "" : ctas.error().Message();
}

Batch::Batch(const std::vector<SequenceLengths>& lengths, const BatchOptions& options,
             uint32_t seed)
    : options_(options), lengths_(lengths), random_(seed) {
  int32_t segments = 1;
  for (const SequenceLengths& sequence : lengths) {
    segments = std::max(segments, static_cast<int32_t>(sequence.size()));
  }
  const int32_t sequences = std::max({options.sequences, static_cast<int32_t>(lengths.size()), 1});
  shape_.q_heads = options.q_heads;
  shape_.causal = options.causal ? 1 : 0;
  shape_.ctas = *AttentionSm90Ctas();
  shape_.sources = segments;
  shape_.capacity = {sequences, segments, 0};
  sources_.resize(segments);
  for (int32_t s = 0; s < segments; ++s) {
    int32_t rows = kGap;
    for (const SequenceLengths& sequence : lengths) {
      if (s >= static_cast<int32_t>(sequence.size())) continue;
      rows += std::max(sequence[s].q_rows, sequence[s].kv_rows) + kGap;
    }
    sources_[s].rows = std::max(rows, options.rows);
    shape_.source_rows[s] = {sources_[s].rows, sources_[s].rows};
    lse_rows_ += sources_[s].rows;
    const auto make = [this](int64_t bytes) {
      memory_.push_back(std::make_unique<GpuMemory>(bytes));
      return memory_.back().get();
    };
    const int32_t heads = options.q_heads + 2 * options.kv_heads;
    sources_[s].fused.resize(int64_t{sources_[s].rows} * heads * kHeadDim);
    sources_[s].output.resize(int64_t{sources_[s].rows} * options.q_heads * kHeadDim);
    sources_[s].device_fused = make(static_cast<int64_t>(sources_[s].fused.size()) * 2);
    sources_[s].device_output = make(static_cast<int64_t>(sources_[s].output.size()) * 2);
  }
  shape_.capacity.work = static_cast<int32_t>(
      MaxWork(lse_rows_, int64_t{sequences} * segments, options.q_heads, shape_.ctas));
  shape_.lse_rows = lse_rows_;
  const int64_t sizes[5] = {ScheduleBytes(shape_.capacity),
                            int64_t{sequences} * segments * int64_t{sizeof(SegmentRows)}, 4, 8,
                            int64_t{options.q_heads} * lse_rows_ * 4};
  GpuMemory** parts[5] = {&schedule_, &device_rows_, &device_count_, &counters_, &device_lse_};
  for (int i = 0; i < 5; ++i) {
    memory_.push_back(std::make_unique<GpuMemory>(sizes[i]));
    *parts[i] = memory_.back().get();
  }
  const int32_t zeros[2] = {0, 0};
  counters_->Write(zeros);
  lse_.resize(int64_t{options.q_heads} * lse_rows_);
  Place();
  Poison(options.poison);
}

void Batch::SetLengths(const std::vector<SequenceLengths>& lengths, uint32_t seed) {
  lengths_ = lengths;
  random_.seed(seed);
  Place();
  Poison(options_.poison);
}

// Rows of sequences one after the other, and random contents.
void Batch::Place() {
  rows_.assign(int64_t{shape_.capacity.sequences} * shape_.capacity.segments, SegmentRows{});
  std::normal_distribution<float> normal;
  for (size_t s = 0; s < sources_.size(); ++s) {
    Source& source = sources_[s];
    source.q_used.assign(source.rows, false);
    source.kv_used.assign(source.rows, false);
    int32_t at = kGap;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      if (s >= lengths_[i].size()) continue;
      const auto [q_rows, kv_rows] = lengths_[i][s];
      rows_[i * shape_.capacity.segments + s] = {static_cast<int32_t>(s), at, q_rows, at, kv_rows};
      std::fill_n(source.q_used.begin() + at, q_rows, true);
      std::fill_n(source.kv_used.begin() + at, kv_rows, true);
      at += std::max(q_rows, kv_rows) + kGap;
    }
    for (uint16_t& value : source.fused) {
      const float x = normal(random_);
      if (options_.element_type == attention::ElementType::kBFloat16) {
        value = __bfloat16_as_ushort(__float2bfloat16(x));
      } else {
        value = __half_as_ushort(__float2half(x));
      }
    }
  }
}

void Batch::Poison(uint16_t pattern) {
  for (Source& source : sources_) {
    for (int32_t row = 0; row < source.rows; ++row) {
      for (int32_t h = 0; h < options_.q_heads + 2 * options_.kv_heads; ++h) {
        const bool used = h < options_.q_heads ? source.q_used[row] : source.kv_used[row];
        if (!used) std::fill_n(Row(source, row, h), kHeadDim, pattern);
      }
    }
  }
}

void Batch::CopySequence(const Batch& other, int32_t from, int32_t to) {
  for (int32_t s = 0; s < shape_.capacity.segments; ++s) {
    const SegmentRows a = other.SegmentAt(from, s);
    const SegmentRows b = SegmentAt(to, s);
    for (int32_t h = 0; h < options_.q_heads + 2 * options_.kv_heads; ++h) {
      const int32_t count = h < options_.q_heads ? a.q_rows : a.kv_rows;
      for (int32_t r = 0; r < count; ++r) {
        std::copy_n(other.Row(other.sources_[s], a.q_begin + r, h), kHeadDim,
                    Row(sources_[s], b.q_begin + r, h));
      }
    }
  }
}

void Batch::Upload() {
  for (Source& source : sources_) {
    std::fill(source.output.begin(), source.output.end(), kCanary);
    source.device_fused->Write(source.fused.data());
    source.device_output->Write(source.output.data());
  }
  std::fill(lse_.begin(), lse_.end(), kUnwritten);
  device_lse_->Write(lse_.data());
  device_rows_->Write(rows_.data());
  const int32_t count = sequences();
  device_count_->Write(&count);
}

Status Batch::Refresh(const Stream& stream) {
  return RefreshScheduleSm90(shape_, static_cast<const SegmentRows*>(device_rows_->data()),
                             static_cast<const int32_t*>(device_count_->data()), schedule_->data(),
                             stream);
}

Status Batch::Run(const Stream& stream) {
  AttentionSm90Params params;
  const int64_t stride = int64_t{options_.q_heads + 2 * options_.kv_heads} * kHeadDim;
  for (size_t s = 0; s < sources_.size(); ++s) {
    const auto* q = static_cast<const uint16_t*>(sources_[s].device_fused->data());
    AttentionSm90Source& source = params.sources[s];
    source.q = q;
    source.k = q + int64_t{options_.q_heads} * kHeadDim;
    source.v = q + int64_t{options_.q_heads + options_.kv_heads} * kHeadDim;
    source.o = sources_[s].device_output->data();
    source.q_row_stride = source.k_row_stride = source.v_row_stride = stride;
    source.o_row_stride = int64_t{options_.q_heads} * kHeadDim;
    source.q_rows = source.kv_rows = sources_[s].rows;
  }
  params.source_count = static_cast<int32_t>(sources_.size());
  params.schedule = schedule_->data();
  params.capacity = shape_.capacity;
  params.counters = static_cast<int32_t*>(counters_->data());
  params.lse = static_cast<float*>(device_lse_->data());
  params.lse_stride = lse_rows_;
  params.q_heads = options_.q_heads;
  params.kv_heads = options_.kv_heads;
  params.head_dim = kHeadDim;
  params.ctas = shape_.ctas;
  params.softmax_scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  params.causal = options_.causal;
  params.element_type = options_.element_type;
  return AttentionSm90(params, stream);
}

void Batch::Fetch() {
  for (Source& source : sources_) source.device_output->Read(source.output.data());
  device_lse_->Read(lse_.data());
}

std::string Batch::Check() {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) return cudaGetErrorString(status);
  Fetch();
  int64_t total = 0;
  for (int32_t i = 0; i < sequences(); ++i) {
    int32_t rows = 0;
    for (const SegmentLength& segment : lengths_[i]) rows += segment.q_rows;
    for (int32_t q = 0; q < rows; ++q) {
      for (int32_t h = 0; h < options_.q_heads; ++h) {
        const std::string wrong = CheckRow(i, q, h, total + q);
        if (!wrong.empty()) {
          return "sequence " + std::to_string(i) + " row " + std::to_string(q) + " head " +
                 std::to_string(h) + ": " + wrong;
        }
      }
    }
    total += rows;
  }
  for (const Source& source : sources_) {
    const int64_t width = int64_t{options_.q_heads} * kHeadDim;
    for (int32_t row = 0; row < source.rows; ++row) {
      if (source.q_used[row]) continue;
      for (int64_t j = 0; j < width; ++j) {
        if (source.output[row * width + j] != kCanary) {
          return "output row " + std::to_string(row) + " belongs to no sequence and was written";
        }
      }
    }
  }
  for (int32_t h = 0; h < options_.q_heads; ++h) {
    for (int64_t i = total; i < lse_rows_; ++i) {
      if (lse_[h * int64_t{lse_rows_} + i] != kUnwritten) return "lse written past its rows";
    }
  }
  int32_t counters[2];
  counters_->Read(counters);
  return counters[0] == 0 && counters[1] == 0 ? "" : "the counters were not left at zero";
}

// Against float64 from the same inputs. Rounding a weight to 8 (11) bits moves it by at most 2^-8
// (2^-11) of itself, and rounding the output moves that as much again: together at most
// 2^-7 sum(p |v|), and a little for the sums.
std::string Batch::CheckRow(int32_t sequence, int32_t query, int32_t head, int64_t lse_row) const {
  SegmentRows place{};
  int32_t row = query;
  int32_t q_rows = 0;
  std::vector<std::pair<const Source*, int32_t>> keys;
  for (int32_t s = 0; s < shape_.capacity.segments; ++s) {
    const SegmentRows segment = SegmentAt(sequence, s);
    if (query >= q_rows && query < q_rows + segment.q_rows) {
      place = segment;
      row = query - q_rows;
    }
    q_rows += segment.q_rows;
    for (int32_t r = 0; r < segment.kv_rows; ++r) {
      keys.emplace_back(&sources_[s], segment.kv_begin + r);
    }
  }
  if (options_.causal) {
    const int64_t seen = static_cast<int64_t>(keys.size()) - q_rows + 1 + query;
    keys.resize(static_cast<size_t>(std::clamp<int64_t>(seen, 0, keys.size())));
  }
  const Source& own = sources_[place.source];
  const uint16_t* q = Row(own, place.q_begin + row, head);
  const int32_t kv_head = head / (options_.q_heads / options_.kv_heads);
  std::vector<double> scores;
  for (const auto& [source, r] : keys) {
    const uint16_t* k = Row(*source, r, options_.q_heads + kv_head);
    double dot = 0;
    for (int32_t d = 0; d < kHeadDim; ++d) dot += double{Value(q[d])} * Value(k[d]);
    scores.push_back(dot / std::sqrt(double{kHeadDim}));
  }
  const double maximum = keys.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> output(kHeadDim, 0.0);
  std::vector<double> magnitude(kHeadDim, 0.0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double p = std::exp(scores[i] - maximum);
    const uint16_t* v =
        Row(*keys[i].first, keys[i].second, options_.q_heads + options_.kv_heads + kv_head);
    sum += p;
    for (int32_t d = 0; d < kHeadDim; ++d) {
      output[d] += p * Value(v[d]);
      magnitude[d] += p * std::abs(Value(v[d]));
    }
  }
  const uint16_t* got =
      own.output.data() + (int64_t{place.q_begin + row} * options_.q_heads + head) * kHeadDim;
  const double bound =
      options_.element_type == attention::ElementType::kBFloat16 ? 0x1p-7 : 0x1p-10;
  for (int32_t d = 0; d < kHeadDim; ++d) {
    const double want = keys.empty() ? 0 : output[d] / sum;
    const double allowed = keys.empty() ? 0 : bound * magnitude[d] / sum + 1e-6;
    const double value = Value(got[d]);
    if (!(std::abs(value - want) <= allowed)) {
      return "column " + std::to_string(d) + " is " + std::to_string(value) + ", not " +
             std::to_string(want);
    }
  }
  const float lse = lse_[head * int64_t{lse_rows_} + lse_row];
  const double want =
      keys.empty() ? -std::numeric_limits<double>::infinity() : maximum + std::log(sum);
  const bool right = keys.empty() ? std::isinf(lse) && lse < 0 : std::abs(lse - want) < 1e-4;
  return right ? "" : "lse is " + std::to_string(lse) + ", not " + std::to_string(want);
}

std::vector<uint16_t> Batch::OutputOf(int32_t sequence) const {
  std::vector<uint16_t> bytes;
  const int64_t width = int64_t{options_.q_heads} * kHeadDim;
  for (int32_t s = 0; s < shape_.capacity.segments; ++s) {
    const SegmentRows segment = SegmentAt(sequence, s);
    const auto begin = sources_[s].output.begin() + segment.q_begin * width;
    bytes.insert(bytes.end(), begin, begin + segment.q_rows * width);
  }
  return bytes;
}

std::vector<float> Batch::LseOf(int32_t sequence) const {
  std::vector<float> values;
  int32_t rows = 0;
  for (const SegmentLength& segment : lengths_[sequence]) rows += segment.q_rows;
  for (int32_t h = 0; h < options_.q_heads; ++h) {
    const auto begin = lse_.begin() + h * int64_t{lse_rows_} + LseBegin(sequence);
    values.insert(values.end(), begin, begin + rows);
  }
  return values;
}

std::vector<uint8_t> Batch::ReadSchedule() const {
  std::vector<uint8_t> bytes(static_cast<size_t>(schedule_->bytes()));
  schedule_->Read(bytes.data());
  return bytes;
}

bool Batch::OutputsUntouched() const {
  return std::all_of(sources_.begin(), sources_.end(), [](const Source& source) {
    return std::all_of(source.output.begin(), source.output.end(),
                       [](uint16_t value) { return value == kCanary; });
  });
}

float Batch::Value(uint16_t bits) const {
  return options_.element_type == attention::ElementType::kBFloat16
             ? __bfloat162float(__ushort_as_bfloat16(bits))
             : __half2float(__ushort_as_half(bits));
}

uint16_t* Batch::Row(Source& source, int32_t row, int32_t head) {
  const int64_t heads = options_.q_heads + 2 * int64_t{options_.kv_heads};
  return source.fused.data() + (row * heads + head) * kHeadDim;
}
const uint16_t* Batch::Row(const Source& source, int32_t row, int32_t head) const {
  const int64_t heads = options_.q_heads + 2 * int64_t{options_.kv_heads};
  return source.fused.data() + (row * heads + head) * kHeadDim;
}

SegmentRows Batch::SegmentAt(int32_t sequence, int32_t segment) const {
  return rows_[int64_t{sequence} * shape_.capacity.segments + segment];
}

int64_t Batch::LseBegin(int32_t sequence) const {
  int64_t begin = 0;
  for (int32_t i = 0; i < sequence; ++i) {
    for (const SegmentLength& segment : lengths_[i]) begin += segment.q_rows;
  }
  return begin;
}

}  // namespace segue::kernels
