#include "gpu/attention_batch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

namespace segue::kernels {
namespace {

constexpr uint16_t kCanary = 0x7fc1;  // a NaN that no kernel writes
constexpr float kUnwritten = 12345.0f;

}  // namespace

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
  shape_.ctas = options.ctas > 0 ? options.ctas : *AttentionSm90Ctas();
  shape_.sources = segments;
  shape_.capacity = {sequences, segments, 0};
  sources_.resize(segments);
  for (int32_t s = 0; s < segments; ++s) {
    int32_t rows = options.gap;
    for (const SequenceLengths& sequence : lengths) {
      if (s >= static_cast<int32_t>(sequence.size())) continue;
      rows += std::max(sequence[s].q_rows, sequence[s].kv_rows) + options.gap;
    }
    sources_[s].rows = std::max({rows, options.rows, 1});
    shape_.source_rows[s] = {sources_[s].rows, sources_[s].rows};
    lse_rows_ += sources_[s].rows;
    const auto make = [this](int64_t bytes) {
      memory_.push_back(std::make_unique<GpuMemory>(bytes, options_.place));
      return memory_.back().get();
    };
    const int32_t heads = options.q_heads + 2 * options.kv_heads;
    sources_[s].fused.resize(int64_t{sources_[s].rows} * heads * options_.head_dim);
    sources_[s].output.resize(int64_t{sources_[s].rows} * options.q_heads * options_.head_dim);
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
    memory_.push_back(std::make_unique<GpuMemory>(sizes[i], options.place));
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
  // Drawing from a table is much faster than from the distribution.
  std::normal_distribution<float> normal;
  std::vector<uint16_t> table(4096);
  for (uint16_t& value : table) value = Bits(normal(random_));
  for (size_t s = 0; s < sources_.size(); ++s) {
    Source& source = sources_[s];
    source.q_used.assign(source.rows, false);
    source.kv_used.assign(source.rows, false);
    int32_t at = options_.gap;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      if (s >= lengths_[i].size()) continue;
      const auto [q_rows, kv_rows] = lengths_[i][s];
      rows_[i * shape_.capacity.segments + s] = {static_cast<int32_t>(s), at, q_rows, at, kv_rows};
      std::fill_n(source.q_used.begin() + at, q_rows, true);
      std::fill_n(source.kv_used.begin() + at, kv_rows, true);
      at += std::max(q_rows, kv_rows) + options_.gap;
    }
    for (uint16_t& value : source.fused) value = table[random_() % table.size()];
  }
}

void Batch::Poison(uint16_t q, uint16_t k, uint16_t v) {
  for (Source& source : sources_) {
    for (int32_t h = 0; h < options_.q_heads + 2 * options_.kv_heads; ++h) {
      const std::vector<bool>& used = Used(source, h);
      const uint16_t of_keys = h < options_.q_heads + options_.kv_heads ? k : v;
      for (int32_t row = 0; row < source.rows; ++row) {
        if (used[row]) continue;
        std::fill_n(Row(source, row, h), options_.head_dim, h < options_.q_heads ? q : of_keys);
      }
    }
  }
}

void Batch::Fill(Part part, const std::function<float(const Element&)>& value) {
  const int32_t begins[4] = {0, options_.q_heads, options_.q_heads + options_.kv_heads,
                             options_.q_heads + 2 * options_.kv_heads};
  for (Source& source : sources_) {
    for (int32_t h = begins[static_cast<int>(part)]; h < begins[static_cast<int>(part) + 1]; ++h) {
      const std::vector<bool>& used = Used(source, h);
      for (int32_t row = 0; row < source.rows; ++row) {
        uint16_t* elements = Row(source, row, h);
        for (int32_t d = 0; used[row] && d < options_.head_dim; ++d) {
          elements[d] = Bits(value({Value(elements[d]), row, d}));
        }
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
        std::copy_n(other.Row(other.sources_[s], a.q_begin + r, h), options_.head_dim,
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
  return RefreshSchedule(shape_, static_cast<const SegmentRows*>(device_rows_->data()),
                         static_cast<const int32_t*>(device_count_->data()), schedule_->data(),
                         stream);
}

Status Batch::Run(const Stream& stream) {
  return options_.backend == BatchOptions::Backend::kSm90 ? RunSm90(stream) : RunCuda(stream);
}

attention::TensorSet Batch::TensorsOf(const Source& source) const {
  auto* q = static_cast<uint16_t*>(source.device_fused->data());
  const int64_t dim = options_.head_dim;
  const int64_t stride = (options_.q_heads + int64_t{2} * options_.kv_heads) * dim;
  return {.q = {q, stride, dim},
          .k = {q + options_.q_heads * dim, stride, dim},
          .v = {q + (options_.q_heads + options_.kv_heads) * dim, stride, dim},
          .o = {source.device_output->data(), options_.q_heads * dim, dim},
          .q_rows = source.rows,
          .kv_rows = source.rows};
}

Status Batch::RunSm90(const Stream& stream) {
  AttentionSm90Params params;
  for (size_t s = 0; s < sources_.size(); ++s) {
    const attention::TensorSet tensors = TensorsOf(sources_[s]);
    AttentionSm90Source& source = params.sources[s];
    source.q = tensors.q.data;
    source.k = tensors.k.data;
    source.v = tensors.v.data;
    source.o = tensors.o.data;
    source.q_row_stride = source.k_row_stride = source.v_row_stride = tensors.q.row_stride;
    source.o_row_stride = tensors.o.row_stride;
    source.q_rows = source.kv_rows = tensors.q_rows;
  }
  params.ctas = shape_.ctas;
  params.counters = static_cast<int32_t*>(counters_->data());
  Complete(params);
  return AttentionSm90(params, stream);
}

Status Batch::RunCuda(const Stream& stream) {
  AttentionCudaParams params;
  for (size_t s = 0; s < sources_.size(); ++s) params.sources[s] = TensorsOf(sources_[s]);
  params.multiprocessors = shape_.ctas;
  Complete(params);
  return AttentionCuda(params, stream);
}

void Batch::Complete(AttentionCall& call) const {
  call.source_count = static_cast<int32_t>(sources_.size());
  call.schedule = schedule_->data();
  call.capacity = shape_.capacity;
  call.lse = static_cast<float*>(device_lse_->data());
  call.lse_stride = lse_rows_;
  call.q_heads = options_.q_heads;
  call.kv_heads = options_.kv_heads;
  call.head_dim = options_.head_dim;
  call.softmax_scale = 1.0f / std::sqrt(static_cast<float>(options_.head_dim));
  call.causal = options_.causal;
  call.element_type = options_.element_type;
}

void Batch::Fetch() {
  for (Source& source : sources_) source.device_output->Read(source.output.data());
  device_lse_->Read(lse_.data());
}

std::string Batch::Check() {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) return cudaGetErrorString(status);
  Fetch();
  const std::string wrong = CheckSequences();
  return wrong.empty() ? CheckUnused(LseBegin(sequences())) : wrong;
}

// Threads take one sequence after the other; the first failure by number is reported.
std::string Batch::CheckSequences() const {
  std::vector<int64_t> begins{0};
  for (const SequenceLengths& sequence : lengths_) {
    begins.push_back(begins.back());
    for (const SegmentLength& segment : sequence) begins.back() += segment.q_rows;
  }
  std::vector<std::string> wrong(lengths_.size());
  std::atomic<int32_t> next = 0;
  const auto work = [&] {
    for (int32_t i = next++; i < sequences(); i = next++) wrong[i] = CheckSequence(i, begins[i]);
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < std::min(16u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
  const auto first =
      std::find_if(wrong.begin(), wrong.end(), [](const auto& text) { return !text.empty(); });
  return first == wrong.end() ? "" : *first;
}

std::string Batch::CheckSequence(int32_t sequence, int64_t lse_begin) const {
  int32_t rows = 0;
  for (const SegmentLength& segment : lengths_[sequence]) rows += segment.q_rows;
  for (int32_t q = 0; q < rows; ++q) {
    if (q % options_.rows_apart != 0 && q >= 2 && q < rows - 2) continue;
    for (int32_t h = 0; h < options_.q_heads; ++h) {
      const std::string wrong = CheckRow(sequence, q, h, lse_begin + q);
      if (wrong.empty()) continue;
      return "sequence " + std::to_string(sequence) + " row " + std::to_string(q) + " of " +
             std::to_string(rows) + " head " + std::to_string(h) + ": " + wrong;
    }
  }
  return "";
}

// What no sequence may touch.
std::string Batch::CheckUnused(int64_t lse_rows) const {
  for (const Source& source : sources_) {
    const int64_t width = int64_t{options_.q_heads} * options_.head_dim;
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
    for (int64_t i = lse_rows; i < lse_rows_; ++i) {
      if (lse_[h * int64_t{lse_rows_} + i] != kUnwritten) return "lse written past its rows";
    }
  }
  int32_t counters[2];
  counters_->Read(counters);
  return counters[0] == 0 && counters[1] == 0 ? "" : "the counters were not left at zero";
}

// Against float64 from the same inputs. Rounding a weight to 8 (11) bits moves it by at most 2^-8
// (2^-11) of itself, and rounding the output moves that as much again: together at most
// 2^-7 sum(p |v|), and a little for the sums. A score is a sum in float, which matters where it is
// large: off by 2^-21 of sum(|q k|) it moves the weight by as much.
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
  double score_error = 0;
  for (const auto& [source, r] : keys) {
    const uint16_t* k = Row(*source, r, options_.q_heads + kv_head);
    double dot = 0;
    double terms = 0;
    for (int32_t d = 0; d < options_.head_dim; ++d) {
      const double term = double{Value(q[d])} * Value(k[d]);
      dot += term;
      terms += std::abs(term);
    }
    scores.push_back(dot / std::sqrt(static_cast<double>(options_.head_dim)));
    score_error =
        std::max(score_error, 0x1p-21 * terms / std::sqrt(static_cast<double>(options_.head_dim)));
  }
  const double maximum = keys.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> output(options_.head_dim, 0.0);
  std::vector<double> magnitude(options_.head_dim, 0.0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double p = std::exp(scores[i] - maximum);
    const uint16_t* v =
        Row(*keys[i].first, keys[i].second, options_.q_heads + options_.kv_heads + kv_head);
    sum += p;
    for (int32_t d = 0; d < options_.head_dim; ++d) {
      output[d] += p * Value(v[d]);
      magnitude[d] += p * std::abs(Value(v[d]));
    }
  }
  const uint16_t* got =
      own.output.data() +
      (int64_t{place.q_begin + row} * options_.q_heads + head) * options_.head_dim;
  const double bound =
      (options_.element_type == attention::ElementType::kBFloat16 ? 0x1p-7 : 0x1p-10) + score_error;
  for (int32_t d = 0; d < options_.head_dim; ++d) {
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
  const bool right =
      keys.empty() ? std::isinf(lse) && lse < 0 : std::abs(lse - want) < 1e-4 + score_error;
  return right ? "" : "lse is " + std::to_string(lse) + ", not " + std::to_string(want);
}

std::vector<uint16_t> Batch::OutputOf(int32_t sequence) const {
  std::vector<uint16_t> bytes;
  const int64_t width = int64_t{options_.q_heads} * options_.head_dim;
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

bool Batch::InputsUntouched() const {
  return std::all_of(sources_.begin(), sources_.end(), [](const Source& source) {
    std::vector<uint16_t> now(source.fused.size());
    source.device_fused->Read(now.data());
    return now == source.fused;
  });
}

std::vector<Batch::DeviceBytes> Batch::Results() const {
  std::vector<DeviceBytes> results{{device_lse_->data(), device_lse_->bytes()}};
  for (const Source& source : sources_) {
    results.push_back({source.device_output->data(), source.device_output->bytes()});
  }
  return results;
}

const std::vector<bool>& Batch::Used(const Source& source, int32_t head) const {
  return head < options_.q_heads ? source.q_used : source.kv_used;
}

uint16_t Batch::Bits(float value) const {
  return options_.element_type == attention::ElementType::kBFloat16
             ? __bfloat16_as_ushort(__float2bfloat16(value))
             : __half_as_ushort(__float2half(value));
}
float Batch::Value(uint16_t bits) const {
  return options_.element_type == attention::ElementType::kBFloat16
             ? __bfloat162float(__ushort_as_bfloat16(bits))
             : __half2float(__ushort_as_half(bits));
}

uint16_t* Batch::Row(Source& source, int32_t row, int32_t head) {
  const int64_t heads = options_.q_heads + 2 * int64_t{options_.kv_heads};
  return source.fused.data() + (row * heads + head) * options_.head_dim;
}
const uint16_t* Batch::Row(const Source& source, int32_t row, int32_t head) const {
  const int64_t heads = options_.q_heads + 2 * int64_t{options_.kv_heads};
  return source.fused.data() + (row * heads + head) * options_.head_dim;
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
