// The sm90 attention kernel's own producer and consumers, run on the host (machine.h).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention_schedule.h"
#include "kernels/cuda/attention/consumer.h"
#include "kernels/cuda/attention/producer.h"
#include "kernels/emulation/machine.h"

namespace segue::kernels {
namespace {

constexpr int32_t kHeadDim = 128;
constexpr int32_t kGap = 3;
constexpr uint16_t kCanary = 0x7fc1;
constexpr uint16_t kPoison = 0x7fff;  // NaN

struct Length {
  int32_t q_rows;
  int32_t kv_rows;
};
using Lengths = std::vector<std::vector<Length>>;  // [sequence][segment]

struct Heads {
  int32_t q = 1;
  int32_t kv = 1;
};

// Source s holds segment s of every sequence, with poisoned rows between.
template <class C>
class EmulatedBatch {
 public:
  EmulatedBatch(const Lengths& lengths, Heads heads, int32_t ctas, uint32_t seed)
      : heads_(heads), seed_(seed) {
    for (const auto& sequence : lengths) {
      segments_ = std::max(segments_, static_cast<int32_t>(sequence.size()));
    }
    shape_.capacity = {static_cast<int32_t>(lengths.size()), segments_, 1000};
    shape_.q_heads = heads.q;
    shape_.causal = C::kCausal ? 1 : 0;
    shape_.ctas = ctas;
    shape_.sources = segments_;
    shape_.lse_rows = INT32_MAX;
    rows_.resize(lengths.size() * segments_);
    sources_.resize(segments_);
    for (int32_t s = 0; s < segments_; ++s) Place(lengths, s);
    for (const SegmentRows& rows : rows_) lse_rows_ += rows.q_rows;
    lse_.assign(static_cast<size_t>(heads.q) * lse_rows_ + 1, 12345.0f);
  }

  // Another order of the threads, the same contents.
  void SetOrder(uint32_t seed) { order_ = seed; }

  // What went wrong in any CTA.
  std::string Run() {
    std::vector<uint64_t> schedule(ScheduleBytes(shape_.capacity) / 8);
    BuildSchedule(shape_, rows_.data(), shape_.capacity.sequences, schedule.data());
    int32_t counters[2] = {0, 0};
    const sm90::KernelParams params = Params(schedule.data(), counters);
    std::vector<int> threads;
    for (int t = 0; t < 32; ++t) threads.push_back(t);
    for (int t = 128; t < C::kThreads; ++t) threads.push_back(t);
    gridDim.x = static_cast<uint32_t>(shape_.ctas);
    for (int32_t cta = 0; cta < shape_.ctas; ++cta) {
      blockIdx.x = static_cast<uint32_t>(cta);
      auto shared = std::make_unique<sm90::SharedMemory<C>>();
      auto* bytes = reinterpret_cast<uint8_t*>(shared.get());
      std::fill_n(bytes, sizeof(*shared), uint8_t{0xff});  // NaN where nothing was loaded
      emulation::Machine machine(order_ + static_cast<uint32_t>(cta));
      InitIn(machine, *shared);
      const std::string failure = machine.Run(threads, bytes, sizeof(*shared), [&](int thread) {
        if (thread < 128) {
          sm90::Producer<C>(params, *shared).Run();
        } else {
          sm90::Consumer<C>(*shared, params.scale_log2).Run();
        }
      });
      if (!failure.empty()) return "CTA " + std::to_string(cta) + ": " + failure;
    }
    return counters[0] == 0 && counters[1] == 0 ? "" : "counters not returned";
  }

  std::string Check() const {
    int64_t lse_row = 0;
    for (int32_t i = 0; i < shape_.capacity.sequences; ++i) {
      int32_t query = 0;
      for (int32_t s = 0; s < segments_; ++s) {
        const SegmentRows& rows = rows_[i * segments_ + s];
        for (int32_t r = 0; r < rows.q_rows; ++r, ++query, ++lse_row) {
          for (int32_t h = 0; h < heads_.q; ++h) {
            const std::string wrong = CheckRow(i, s, r, query, h, lse_row);
            if (!wrong.empty()) return wrong;
          }
        }
      }
    }
    for (const Source& source : sources_) {
      for (size_t j = 0; j < source.o.size(); ++j) {
        const bool used = source.q_used[j / (heads_.q * kHeadDim)];
        if (!used && source.o[j] != kCanary) return "wrote an output row of nobody";
      }
    }
    return lse_.back() == 12345.0f ? "" : "wrote past the log-sum-exp";
  }

  const std::vector<uint16_t>& output(int32_t source) const { return sources_[source].o; }

 private:
  struct Source {
    int32_t rows = 0;
    std::vector<uint16_t> q, k, v, o;
    std::vector<bool> q_used;
  };

  void Place(const Lengths& lengths, int32_t s) {
    Source& source = sources_[s];
    int32_t at = kGap;
    std::vector<bool> kv_used;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (s >= static_cast<int32_t>(lengths[i].size())) continue;
      const auto [q_rows, kv_rows] = lengths[i][s];
      rows_[i * segments_ + s] = {s, at, q_rows, at, kv_rows};
      source.q_used.resize(at, false);
      source.q_used.resize(at + q_rows, true);
      kv_used.resize(at, false);
      kv_used.resize(at + kv_rows, true);
      at += std::max(q_rows, kv_rows) + kGap;
    }
    source.rows = at;
    source.q_used.resize(at, false);
    kv_used.resize(at, false);
    shape_.source_rows[s] = {at, at};
    std::mt19937 random(seed_ + static_cast<uint32_t>(s));
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<uint16_t>& tensor, int32_t heads,
                          const std::vector<bool>& used) {
      tensor.resize(static_cast<size_t>(at) * heads * kHeadDim);
      for (size_t j = 0; j < tensor.size(); ++j) {
        const bool row_used = used[j / (static_cast<size_t>(heads) * kHeadDim)];
        const float x = normal(random);
        tensor[j] = row_used ? FromFloat(x) : kPoison;
      }
    };
    fill(source.q, heads_.q, source.q_used);
    fill(source.k, heads_.kv, kv_used);
    fill(source.v, heads_.kv, kv_used);
    source.o.assign(static_cast<size_t>(at) * heads_.q * kHeadDim, kCanary);
  }

  static constexpr bool kFloat16 = std::is_same_v<typename C::Element, device::Float16>;
  static uint16_t FromFloat(float x) { return kFloat16 ? FloatToF16(x) : FloatToBF16(x); }
  static double Value(uint16_t x) { return kFloat16 ? F16ToFloat(x) : BF16ToFloat(x); }

  sm90::KernelParams Params(const void* schedule, int32_t* counters) {
    sm90::KernelParams params{};
    for (int32_t s = 0; s < segments_; ++s) {
      Source& source = sources_[s];
      const auto map = [&](const std::vector<uint16_t>& tensor, int32_t heads, int32_t box_rows) {
        return emulation::TensorMap{tensor.data(), int64_t{heads} * kHeadDim, source.rows, heads,
                                    box_rows};
      };
      params.maps[s] = {
          map(source.q, heads_.q, kHalfQueryTile),   map(source.k, heads_.kv, C::kKeys),
          map(source.k, heads_.kv, sm90::kKeyBlock), map(source.k, heads_.kv, kKeyGroup),
          map(source.v, heads_.kv, C::kKeys),        map(source.v, heads_.kv, sm90::kKeyBlock),
          map(source.v, heads_.kv, kKeyGroup),       map(source.v, heads_.kv, 1)};
      params.outputs[s] = {source.o.data(), int64_t{heads_.q} * kHeadDim, kHeadDim};
      params.kv_rows[s] = source.rows;
    }
    params.capacity = shape_.capacity;
    params.queries_per_key_head = heads_.q / heads_.kv;
    params.schedule = static_cast<const uint8_t*>(schedule);
    params.counters = counters;
    params.lse = lse_.data();
    params.lse_stride = lse_rows_;
    params.scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(double{kHeadDim}));
    return params;
  }

  static void InitIn(emulation::Machine& machine, sm90::SharedMemory<C>& shared) {
    // On no fiber: initialising a barrier neither waits nor yields.
    machine.MakeCurrent();
    sm90::InitBarriers(shared);
  }

  std::string CheckRow(int32_t sequence, int32_t s, int32_t row, int32_t query, int32_t head,
                       int64_t lse_row) const {
    const SegmentRows& place = rows_[sequence * segments_ + s];
    const int32_t kv_head = head / (heads_.q / heads_.kv);
    int32_t q_rows = 0;
    std::vector<std::pair<int32_t, int32_t>> keys;
    for (int32_t j = 0; j < segments_; ++j) {
      const SegmentRows& rows = rows_[sequence * segments_ + j];
      q_rows += rows.q_rows;
      for (int32_t r = 0; r < rows.kv_rows; ++r) keys.emplace_back(j, rows.kv_begin + r);
    }
    if (C::kCausal) {
      const auto total = static_cast<int32_t>(keys.size());
      keys.resize(std::clamp(total - q_rows + 1 + query, 0, total));
    }
    const auto at = [](const std::vector<uint16_t>& tensor, int64_t r, int64_t heads, int64_t h) {
      return tensor.data() + (r * heads + h) * kHeadDim;
    };
    const Source& own = sources_[s];
    const uint16_t* q = at(own.q, place.q_begin + row, heads_.q, head);
    double sum = 0;
    std::vector<double> want(kHeadDim, 0.0);
    std::vector<double> magnitude(kHeadDim, 0.0);
    for (const auto& [j, r] : keys) {
      const uint16_t* k = at(sources_[j].k, r, heads_.kv, kv_head);
      const uint16_t* v = at(sources_[j].v, r, heads_.kv, kv_head);
      double dot = 0;
      for (int32_t d = 0; d < kHeadDim; ++d) dot += Value(q[d]) * Value(k[d]);
      const double p = std::exp(dot / std::sqrt(double{kHeadDim}));
      sum += p;
      for (int32_t d = 0; d < kHeadDim; ++d) {
        want[d] += p * Value(v[d]);
        magnitude[d] += p * std::abs(Value(v[d]));
      }
    }
    const std::string where = "sequence " + std::to_string(sequence) + " row " +
                              std::to_string(query) + " head " + std::to_string(head);
    const uint16_t* got = at(own.o, place.q_begin + row, heads_.q, head);
    const double bound = kFloat16 ? 0x1p-10 : 0x1p-7;  // see tests/gpu/attention_batch.cc
    for (int32_t d = 0; d < kHeadDim; ++d) {
      const double value = keys.empty() ? 0 : want[d] / sum;
      const double allowed = keys.empty() ? 0 : bound * magnitude[d] / sum + 1e-6;
      if (!(std::abs(Value(got[d]) - value) <= allowed)) {
        return where + " column " + std::to_string(d) + " is " + std::to_string(Value(got[d])) +
               ", not " + std::to_string(value);
      }
    }
    const float lse = lse_[static_cast<size_t>(head * lse_rows_ + lse_row)];
    const bool right =
        keys.empty() ? std::isinf(lse) && lse < 0 : std::abs(lse - std::log(sum)) < 1e-4;
    return right ? "" : where + ": lse is " + std::to_string(lse);
  }

  Heads heads_;
  uint32_t seed_;
  uint32_t order_ = 0;
  int32_t segments_ = 1;
  ScheduleShape shape_{};
  std::vector<SegmentRows> rows_;
  std::vector<Source> sources_;
  std::vector<float> lse_;
  int64_t lse_rows_ = 0;
};

using Plain = sm90::Config<device::BFloat16, false>;
using Causal = sm90::Config<device::BFloat16, true>;

template <class C>
void RunAndCheck(const Lengths& lengths, Heads heads, int32_t ctas = 1, uint32_t seed = 1) {
  EmulatedBatch<C> batch(lengths, heads, ctas, seed);
  ASSERT_EQ(batch.Run(), "");
  EXPECT_EQ(batch.Check(), "");
}

// Six key tiles go three times round the rings.
TEST(AttentionSm90Emulation, WholeTiles) { RunAndCheck<Plain>({{{70, 1056}}}, {}); }

// Three query tiles on two CTAs: the third is cut in two.
TEST(AttentionSm90Emulation, ASplitLastWave) { RunAndCheck<Plain>({{{300, 40}}}, {}, 2); }

// Tiles without keys are handed over faster than they are written.
TEST(AttentionSm90Emulation, RowsWithoutKeys) {
  RunAndCheck<Plain>({{{700, 0}}, {{20, 9}}, {{0, 4}}}, {});
}

TEST(AttentionSm90Emulation, SegmentsShareATile) {
  RunAndCheck<Plain>({{{14, 14}, {70, 210}}}, {});
}

TEST(AttentionSm90Emulation, ATileOfManySegments) {
  RunAndCheck<Plain>({{{3, 3}, {0, 8}, {1, 0}, {0, 0}, {2, 17}, {5, 33}, {0, 1}}}, {});
}

TEST(AttentionSm90Emulation, LengthsAroundTheEdges) {
  RunAndCheck<Plain>({{{1, 1}}, {{64, 7}}, {{65, 8}}, {{1, 175}}, {{2, 177}}, {{0, 5}}, {{5, 0}}},
                     {}, 2);
}

TEST(AttentionSm90Emulation, CausalGroupedHeads) {
  RunAndCheck<Causal>({{{130, 150}}}, {.q = 2, .kv = 1});
}

TEST(AttentionSm90Emulation, CausalAcrossSegmentsAndRowsWithoutKeys) {
  RunAndCheck<Causal>({{{20, 13}, {60, 30}}, {{9, 70}, {3, 75}}}, {}, 2);
}

TEST(AttentionSm90Emulation, Float16) {
  RunAndCheck<sm90::Config<device::Float16, false>>({{{9, 9}, {30, 185}}}, {});
}

TEST(AttentionSm90Emulation, EveryOrderOfThreadsGivesTheSameBytes) {
  const Lengths lengths = {{{6, 11}, {70, 180}}, {{3, 360}}};
  std::vector<uint16_t> first;
  for (uint32_t order = 0; order < 3; ++order) {
    EmulatedBatch<Plain> batch(lengths, {}, 2, 5);
    batch.SetOrder(order * 1000);
    ASSERT_EQ(batch.Run(), "");
    ASSERT_EQ(batch.Check(), "");
    if (order == 0) first = batch.output(1);
    EXPECT_EQ(batch.output(1), first);
  }
}

}  // namespace
}  // namespace segue::kernels
