// Whatever each role of the kernel is late for, the bytes are the same.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/delayed_attention.h"
#include "gpu/gpu_rig.h"
#include "gpu/repeated_runs.h"

namespace segue::kernels {
namespace {

constexpr uint32_t kRuns = 2000;  // of each case: 12,000 in all

class AttentionDelays : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  static std::string Fresh(Batch& batch) {
    batch.Upload();
    const Status refreshed = batch.Refresh(Stream::Cuda(nullptr));
    if (!refreshed.ok()) return refreshed.error().Message();
    const Status run = batch.Run(Stream::Cuda(nullptr));
    return run.ok() ? batch.Check() : run.error().Message();
  }

  // Seconds that kRuns launches take.
  static double Launch(RepeatedRuns& runs, uint32_t from) {
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t run = 0; run < kRuns; ++run) {
      const std::string wrong = runs.Again(from + run, nullptr);
      EXPECT_EQ(wrong, "") << "run " << run;
      if (!wrong.empty()) break;
    }
    EXPECT_EQ(runs.Different(), "");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  // Against float64 without and with delays; then every delayed run against the first one without.
  static void RunOften(const std::vector<SequenceLengths>& lengths, const BatchOptions& options,
                       bool dynamic) {
    Batch batch(lengths, options, 23);
    ASSERT_EQ(SetRandomDelays(false), cudaSuccess);
    ASSERT_EQ(Fresh(batch), "");
    ScheduleHeader header;
    const std::vector<uint8_t> schedule = batch.ReadSchedule();
    std::copy_n(schedule.begin(), sizeof(header), reinterpret_cast<uint8_t*>(&header));
    ASSERT_EQ(header.dynamic, dynamic ? 1 : 0) << "the case is not what it is for";
    RepeatedRuns runs(batch);
    ASSERT_EQ(runs.First(nullptr), "");
    const double quick = Launch(runs, 0);
    ASSERT_EQ(SetRandomDelays(true), cudaSuccess);
    const double slow = Launch(runs, kRuns);
    // Otherwise nothing was delayed.
    EXPECT_GT(slow, quick);
    EXPECT_EQ(Fresh(batch), "");
    ASSERT_EQ(SetRandomDelays(false), cudaSuccess);
  }
};

const std::vector<SequenceLengths> kEqual(4, {{14, 14}, {150, 390}});
const std::vector<SequenceLengths> kRagged = {{{14, 14}, {150, 187}, {0, 9}},
                                              {{64, 64}, {1, 700}},
                                              {{0, 0}, {129, 0}},
                                              {{0, 70}, {300, 353}}};

TEST_F(AttentionDelays, StaticOrder) { RunOften(kEqual, {.ctas = 5}, false); }

TEST_F(AttentionDelays, StaticOrderWithASplitLastWave) { RunOften(kEqual, {.ctas = 11}, false); }

TEST_F(AttentionDelays, OrderFromACounter) { RunOften(kRagged, {.ctas = 3}, true); }

TEST_F(AttentionDelays, OrderFromACounterOnAllCtas) {
  RunOften(kRagged, {.q_heads = 12, .kv_heads = 4}, true);
}

TEST_F(AttentionDelays, Causal) { RunOften(kEqual, {.causal = true, .ctas = 3}, true); }

TEST_F(AttentionDelays, CausalRagged) {
  RunOften(kRagged, {.q_heads = 6, .kv_heads = 2, .causal = true, .ctas = 7}, true);
}

}  // namespace
}  // namespace segue::kernels
