#include "bench/attention_check.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "base/dtype.h"
#include "bench/gpu.h"
#include "device/thread_pool.h"

namespace segue::bench {
namespace {

constexpr size_t kMaxSequences = 12;
constexpr int64_t kRandomRows = 8;  // of a segment, besides its first and last

// One sampled row of the sequence and head at hand.
struct SampledRow {
  std::vector<float> query;
  std::vector<float> got;
  int64_t visible_keys = 0;
};

struct Errors {
  double squares = 0;
  double largest = 0;
  double plain_squares = 0;
  double plain_largest = 0;
  int64_t count = 0;

  void Add(const Errors& other) {
    squares += other.squares;
    plain_squares += other.plain_squares;
    largest = std::max(largest, other.largest);
    plain_largest = std::max(plain_largest, other.plain_largest);
    count += other.count;
  }
};

Result<std::vector<float>> ReadRows(const uint16_t* device, int64_t rows, int64_t row_stride,
                                    int32_t head_dim) {
  std::vector<uint16_t> bits(static_cast<size_t>(rows * head_dim));
  SEGUE_RETURN_IF_ERROR(
      DownloadRows(bits.data(), device, rows, int64_t{head_dim} * 2, row_stride * 2));
  std::vector<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), BF16ToFloat);
  return values;
}

Result<HostHead> ReadHead(const CheckedSequence& sequence, const CheckOptions& options,
                          int32_t head) {
  HostHead result;
  const int64_t column = int64_t{head / (options.heads / options.kv_heads)} * options.head_dim;
  for (const CheckedSegment& segment : sequence) {
    if (segment.kv_rows == 0) continue;
    SEGUE_ASSIGN_OR_RETURN(
        const std::vector<float> keys,
        ReadRows(segment.k + column, segment.kv_rows, segment.kv_row_stride, options.head_dim));
    SEGUE_ASSIGN_OR_RETURN(
        const std::vector<float> values,
        ReadRows(segment.v + column, segment.kv_rows, segment.kv_row_stride, options.head_dim));
    result.keys.insert(result.keys.end(), keys.begin(), keys.end());
    result.values.insert(result.values.end(), values.begin(), values.end());
  }
  return result;
}

Result<std::vector<SampledRow>> ReadSamples(const CheckedSequence& sequence,
                                            const CheckOptions& options, int32_t head,
                                            std::minstd_rand* random) {
  int64_t q_rows = 0;
  int64_t kv_rows = 0;
  for (const CheckedSegment& segment : sequence) {
    q_rows += segment.q_rows;
    kv_rows += segment.kv_rows;
  }
  std::vector<SampledRow> samples;
  const int64_t column = int64_t{head} * options.head_dim;
  int64_t before = 0;
  for (const CheckedSegment& segment : sequence) {
    std::set<int64_t> rows;
    if (segment.q_rows > 0) rows = {0, segment.q_rows - 1};
    for (int64_t i = 0; i < kRandomRows && segment.q_rows > 0; ++i) {
      rows.insert(static_cast<int64_t>((*random)()) % segment.q_rows);
    }
    for (const int64_t row : rows) {
      SampledRow sample;
      SEGUE_ASSIGN_OR_RETURN(sample.query, ReadRows(segment.q + row * segment.q_row_stride + column,
                                                    1, segment.q_row_stride, options.head_dim));
      SEGUE_ASSIGN_OR_RETURN(sample.got, ReadRows(segment.o + row * segment.o_row_stride + column,
                                                  1, segment.o_row_stride, options.head_dim));
      sample.visible_keys =
          options.causal ? std::clamp<int64_t>(kv_rows - q_rows + 1 + before + row, 0, kv_rows)
                         : kv_rows;
      samples.push_back(std::move(sample));
    }
    before += segment.q_rows;
  }
  return samples;
}

Errors Compare(const SampledRow& sample, const HostHead& head, const CheckOptions& options) {
  const RowReference reference = ReferenceRow(sample.query.data(), head, sample.visible_keys,
                                              options.head_dim, options.softmax_scale);
  Errors errors{.count = options.head_dim};
  for (int32_t d = 0; d < options.head_dim; ++d) {
    double error = std::abs(double{sample.got[d]} - reference.exact[d]);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    const double plain = std::abs(reference.plain[d] - reference.exact[d]);
    errors.squares += error * error;
    errors.plain_squares += plain * plain;
    errors.largest = std::max(errors.largest, error);
    errors.plain_largest = std::max(errors.plain_largest, plain);
  }
  return errors;
}

std::string Describe(double rms, double largest) {
  return "rms " + std::to_string(rms * 1e6) + "e-6, largest " + std::to_string(largest * 1e6) +
         "e-6";
}

}  // namespace

RowReference ReferenceRow(const float* query, const HostHead& head, int64_t visible_keys,
                          int32_t head_dim, float softmax_scale) {
  RowReference result{.exact = std::vector<double>(head_dim),
                      .plain = std::vector<double>(head_dim)};
  if (visible_keys == 0) return result;
  std::vector<double> scores(static_cast<size_t>(visible_keys));
  for (int64_t j = 0; j < visible_keys; ++j) {
    const float* key = head.keys.data() + j * head_dim;
    double sum = 0;
    for (int32_t d = 0; d < head_dim; ++d) sum += double{query[d]} * key[d];
    scores[j] = sum * softmax_scale;
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  double plain_sum = 0;
  for (int64_t j = 0; j < visible_keys; ++j) {
    const float* value = head.values.data() + j * head_dim;
    const double weight = std::exp(scores[j] - largest);
    const float plain = std::exp(static_cast<float>(scores[j]) - static_cast<float>(largest));
    const double rounded = RoundToBF16(plain);
    sum += weight;
    plain_sum += plain;
    for (int32_t d = 0; d < head_dim; ++d) {
      result.exact[d] += weight * value[d];
      result.plain[d] += rounded * value[d];
    }
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    result.exact[d] /= sum;
    result.plain[d] = RoundToBF16(static_cast<float>(result.plain[d] / plain_sum));
  }
  return result;
}

Status CheckAttention(const std::vector<CheckedSequence>& sequences, const CheckOptions& options) {
  ThreadPool pool(options.threads);
  std::minstd_rand random(7);
  Errors total;
  const size_t checked = std::min(sequences.size(), kMaxSequences);
  for (size_t i = 0; i < checked; ++i) {
    // Evenly spread, first and last included.
    const size_t at = checked == 1 ? 0 : i * (sequences.size() - 1) / (checked - 1);
    std::set<int32_t> heads = {static_cast<int32_t>(i) % options.heads};
    if (checked <= 2) heads = {0, options.heads / 2, options.heads - 1};
    for (const int32_t head : heads) {
      SEGUE_ASSIGN_OR_RETURN(const HostHead host, ReadHead(sequences[at], options, head));
      SEGUE_ASSIGN_OR_RETURN(const std::vector<SampledRow> samples,
                             ReadSamples(sequences[at], options, head, &random));
      std::vector<Errors> errors(samples.size());
      pool.ForEach(static_cast<int64_t>(samples.size()), [&](int64_t task, int) {
        errors[task] = Compare(samples[task], host, options);
      });
      for (const Errors& one : errors) total.Add(one);
    }
  }
  const double count = static_cast<double>(std::max<int64_t>(total.count, 1));
  const double rms = std::sqrt(total.squares / count);
  const double plain_rms = std::sqrt(total.plain_squares / count);
  if (rms <= 2 * plain_rms && total.largest <= 2 * total.plain_largest) return {};
  return Error{
      .code = ErrorCode::kInternal,
      .operation = "verify attention",
      .argument = options.name,
      .got = Describe(rms, total.largest),
      .wanted = "at most twice a plain kernel's " + Describe(plain_rms, total.plain_largest)};
}

}  // namespace segue::bench
