// Attention as its definition reads, in double precision, over rows that a test lists one by one:
// what adapters and back ends are judged by.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "segue/attention_plan.h"

namespace segue::attention {

inline constexpr float kCanary = -1.2345e30f;

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

inline Options OptionsOf(int32_t q_heads, int32_t kv_heads, int32_t head_dim, bool causal = false) {
  return {.q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
          .causal = causal};
}

// One row of a float32 tensor: head h begins at data + h * head_stride.
struct NaiveRow {
  float* data = nullptr;
  int64_t head_stride = 0;
};

struct NaiveSequence {
  std::vector<NaiveRow> q, k, v, o;  // o parallel to q, v to k
};

struct NaiveResult {
  std::vector<double> o;  // [rows, head_dim] of one head
  std::vector<double> lse;
};

inline NaiveResult Naive(const Options& options, const NaiveSequence& sequence, int32_t head) {
  const int32_t kv_head = head / (options.q_heads / options.kv_heads);
  const auto queries = static_cast<int64_t>(sequence.q.size());
  const auto keys = static_cast<int64_t>(sequence.k.size());
  NaiveResult result;
  for (int64_t row = 0; row < queries; ++row) {
    const int64_t seen = options.causal ? keys - queries + 1 + row : keys;
    const float* q = sequence.q[row].data + head * sequence.q[row].head_stride;
    double sum = 0.0;
    std::vector<double> mean(options.head_dim);
    for (int64_t key = 0; key < seen; ++key) {
      const float* k = sequence.k[key].data + kv_head * sequence.k[key].head_stride;
      const float* v = sequence.v[key].data + kv_head * sequence.v[key].head_stride;
      double score = 0.0;
      for (int32_t i = 0; i < options.head_dim; ++i) score += double{q[i]} * k[i];
      const double weight = std::exp(score * options.softmax_scale);  // small scores: no shift
      sum += weight;
      for (int32_t i = 0; i < options.head_dim; ++i) mean[i] += weight * v[i];
    }
    for (const double value : mean) result.o.push_back(seen > 0 ? value / sum : 0.0);
    result.lse.push_back(std::log(sum));  // log 0 is -infinity
  }
  return result;
}

inline void ExpectNear(double got, double want, const std::string& what) {
  if (std::isinf(want)) {
    ASSERT_EQ(got, want) << what;
  } else {
    ASSERT_NEAR(got, want, 3e-6 * (1.0 + std::abs(want))) << what;
  }
}

// Compares rows of `o` with the definition and gives them back their canaries, so that the caller
// can check that nothing else was written. `lse`: [q_heads, stride].
inline void ExpectNaive(const Options& options, const std::vector<NaiveSequence>& sequences,
                        const std::vector<float>& lse, int64_t stride, const std::string& what) {
  for (int32_t head = 0; head < options.q_heads; ++head) {
    int64_t lse_row = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const NaiveResult want = Naive(options, sequences[s], head);
      for (size_t row = 0; row < sequences[s].q.size(); ++row) {
        const std::string where = what + ", sequence " + std::to_string(s) + ", row " +
                                  std::to_string(row) + ", head " + std::to_string(head);
        ExpectNear(lse[head * stride + lse_row++], want.lse[row], where + ", lse");
        float* o = sequences[s].o[row].data + head * sequences[s].o[row].head_stride;
        for (int32_t i = 0; i < options.head_dim; ++i) {
          ExpectNear(o[i], want.o[row * options.head_dim + i], where);
          o[i] = kCanary;
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

inline int64_t QueryRowsOf(const std::vector<NaiveSequence>& sequences) {
  int64_t rows = 0;
  for (const NaiveSequence& sequence : sequences) rows += static_cast<int64_t>(sequence.q.size());
  return rows;
}

inline void ExpectCanaries(const std::vector<float>& output, const std::string& what) {
  for (size_t i = 0; i < output.size(); ++i) {
    ASSERT_EQ(output[i], kCanary) << what << ", element " << i;
  }
}

// Segments with pointers of their own through both CPU back ends. Every output lies in `outputs`,
// which hold canaries before and after.
inline void CheckSequences(const Options& options, const std::vector<Sequence>& sequences,
                           const std::vector<NaiveSequence>& naive,
                           const std::vector<std::vector<float>*>& outputs,
                           const std::string& what) {
  ThreadPool pool(2);
  const int64_t rows = QueryRowsOf(naive);
  for (const char* backend : {"ref", "cpu"}) {
    const std::string where = what + ", " + backend;
    std::vector<float> lse(options.q_heads * rows, kCanary);
    const Status status = Attention(
        {.options = options, .sequences = sequences, .lse = lse.data(), .backend = backend},
        {.stream = Stream::Cpu(pool)});
    ASSERT_TRUE(status.ok()) << where << ": " << status.error().Message();
    ExpectNaive(options, naive, lse, rows, where);
    for (const std::vector<float>* output : outputs) ExpectCanaries(*output, where);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Rows of tensors through a plan of each CPU back end.
inline void CheckBatch(const Options& options, const Batch& batch,
                       const std::vector<NaiveSequence>& naive,
                       const std::vector<std::vector<float>*>& outputs, const std::string& what) {
  for (const char* backend : {"ref", "cpu"}) {
    const std::string where = what + ", plan of " + backend;
    PlanSettings settings = PlanFor(batch, options, Place::kCpu);
    settings.backend = backend;
    settings.wants_lse = true;
    settings.threads = 2;
    Result<Plan> plan = Plan::Create(settings);
    ASSERT_TRUE(plan.ok()) << where << ": " << plan.error().Message();
    Status status = plan->SetLengths(batch.rows, nullptr, nullptr);
    ASSERT_TRUE(status.ok()) << where << ": " << status.error().Message();
    const int64_t stride = plan->settings().max_query_rows;
    std::vector<float> lse(options.q_heads * stride, kCanary);
    status = plan->Run(batch.tensors, lse.data(), stride, nullptr, nullptr);
    ASSERT_TRUE(status.ok()) << where << ": " << status.error().Message();
    ExpectNaive(options, naive, lse, stride, where);
    for (const std::vector<float>* output : outputs) ExpectCanaries(*output, where);
    if (testing::Test::HasFatalFailure()) return;
  }
}

inline std::string ErrorOf(const Status& status) {
  return status.ok() ? "" : status.error().Message();
}

}  // namespace segue::attention
