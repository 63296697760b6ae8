// Public reports about captured graphs, each as a case of our kernels.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/attention_case.h"

namespace segue::kernels {
namespace {

class AttentionCaptureGpu : public AttentionCase {
 protected:
  void SetUp() override {
    AttentionCase::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (side_ != nullptr) cudaStreamDestroy(side_);
  }

  std::unique_ptr<Captured> CaptureRefresh(Batch& batch) {
    return std::make_unique<Captured>(
        side_, [&] { EXPECT_TRUE(batch.Refresh(Stream::Cuda(side_)).ok()); });
  }
  std::unique_ptr<Captured> CaptureRun(Batch& batch) {
    return std::make_unique<Captured>(side_,
                                      [&] { EXPECT_TRUE(batch.Run(Stream::Cuda(side_)).ok()); });
  }
  std::unique_ptr<Captured> CaptureBoth(Batch& batch) {
    return std::make_unique<Captured>(side_, [&] {
      EXPECT_TRUE(batch.Refresh(Stream::Cuda(side_)).ok());
      EXPECT_TRUE(batch.Run(Stream::Cuda(side_)).ok());
    });
  }

  // Lengths and contents in place of those before, replayed and judged.
  static std::vector<uint32_t> Replay(Batch& batch, Captured& graph,
                                      const std::vector<SequenceLengths>& lengths, uint32_t seed) {
    batch.SetLengths(lengths, seed);
    batch.Upload();
    graph.Replay();
    EXPECT_EQ(batch.Check(), "");
    return BitsOf(batch);
  }
  // The same by eager calls of a batch with the same capacity.
  static std::vector<uint32_t> Eager(const std::vector<SequenceLengths>& first,
                                     const BatchOptions& options,
                                     const std::vector<SequenceLengths>& lengths, uint32_t seed) {
    Batch batch(first, options, 1);
    batch.SetLengths(lengths, seed);
    EXPECT_EQ(Launch(batch), "");
    batch.Fetch();
    return BitsOf(batch);
  }

  static ScheduleHeader HeaderOf(const Batch& batch) {
    ScheduleHeader header;
    const std::vector<uint8_t> schedule = batch.ReadSchedule();
    std::memcpy(&header, schedule.data(), sizeof(header));
    return header;
  }

  cudaStream_t side_ = nullptr;
};

// B051: each launch alone on a stream of its own is a node, and a replay with new inputs gives what
// an eager call gives. (Packing: PackGpu.GraphReplaysWithOtherMasks.)
TEST_F(AttentionCaptureGpu, EveryLaunchGoesToTheCallersStream) {
  const std::vector<SequenceLengths> first = {{{14, 14}, {150, 187}}, {{3, 9}, {65, 129}}};
  for (const bool causal : {false, true}) {
    const BatchOptions options{.causal = causal};
    Batch batch(first, options, 83);
    ASSERT_EQ(LaunchAndCheck(batch), "");

    const auto refresh = CaptureRefresh(batch);
    EXPECT_GE(refresh->nodes(), 1u);
    batch.SetLengths({{{9, 9}, {65, 40}}}, 84);
    batch.Upload();
    refresh->Replay();
    std::vector<uint8_t> host(static_cast<size_t>(ScheduleBytes(batch.shape().capacity)));
    BuildSchedule(batch.shape(), batch.rows().data(), batch.sequences(), host.data());
    EXPECT_TRUE(batch.ReadSchedule() == host);

    batch.SetLengths(first, 85);
    batch.Upload();
    refresh->Replay();
    const auto run = CaptureRun(batch);
    EXPECT_GE(run->nodes(), 1u);
    for (const uint32_t seed : {86u, 87u}) {
      EXPECT_TRUE(Replay(batch, *run, first, seed) == Eager(first, options, first, seed))
          << "causal " << causal << ", seed " << seed;
    }
  }
}

// B052: captured with x1, replayed with x2, x1 again, and x3 of other lengths.
TEST_F(AttentionCaptureGpu, ReplaysWithNewInputs) {
  const std::vector<SequenceLengths> first = {{{14, 14}, {150, 187}}, {{3, 9}, {65, 129}}};
  const std::vector<SequenceLengths> other = {{{7, 14}, {1, 187}}, {{0, 9}, {200, 31}}};
  for (const bool causal : {false, true}) {
    const BatchOptions options{.causal = causal, .sequences = 3, .rows = 400};
    Batch batch(first, options, 1);
    const auto graph = CaptureBoth(batch);
    const auto replay_and_compare = [&](const std::vector<SequenceLengths>& lengths,
                                        uint32_t seed) {
      EXPECT_TRUE(Replay(batch, *graph, lengths, seed) == Eager(first, options, lengths, seed))
          << "causal " << causal << ", seed " << seed;
    };
    replay_and_compare(first, 2);
    replay_and_compare(first, 1);
    replay_and_compare(other, 3);
  }
}

// B078: captured for a bucket of 512 text rows with 500 of them, replayed with others, then with
// one sequence fewer.
TEST_F(AttentionCaptureGpu, OtherTextLengthsInABucket) {
  const auto joint = [](int32_t text) { return SequenceLengths{{text, text}, {300, 300}}; };
  const std::vector<SequenceLengths> first(2, joint(500));
  const BatchOptions options{.sequences = 2, .rows = 1100, .rows_apart = 17};
  Batch batch(first, options, 1);
  const auto graph = CaptureBoth(batch);
  uint32_t seed = 10;
  for (const int32_t text : {3, 511, 512, 77}) {
    const std::vector<SequenceLengths> both = {joint(text), joint(512 - text)};
    ++seed;
    EXPECT_TRUE(Replay(batch, *graph, both, seed) == Eager(first, options, both, seed)) << text;
  }
  const std::vector<SequenceLengths> one = {joint(77)};
  EXPECT_TRUE(Replay(batch, *graph, one, 20) == Eager(first, options, one, 20)) << "one sequence";
}

// B079: one graph of a capacity of 16 sequences, every number of them.
TEST_F(AttentionCaptureGpu, EveryNumberOfSequencesInACapacity) {
  const std::vector<SequenceLengths> all(16, {{33, 65}});
  const BatchOptions options{.sequences = 16};
  Batch batch(all, options, 1);
  const auto graph = CaptureBoth(batch);
  for (const uint32_t count : {0u, 1u, 2u, 3u, 7u, 8u, 15u, 16u, 1u}) {
    const std::vector<SequenceLengths> some(all.begin(), all.begin() + count);
    EXPECT_TRUE(Replay(batch, *graph, some, count) == Eager(all, options, some, count)) << count;
  }
}

// B080: as many rows and sequences, another number of tiles; in both orders, the schedule and all
// outputs ending where nothing is mapped any more.
TEST_F(AttentionCaptureGpu, TilesFollowFromContentNotFromShape) {
  const GpuMemory probe(4, GpuMemory::Place::kBeforeAGuard);
  if (probe.data() == nullptr) GTEST_SKIP() << "the driver maps no memory page by page";
  const std::vector<std::vector<SequenceLengths>> orders[2] = {
      {{{{64, 64}}, {{64, 64}}}, {{{63, 63}}, {{65, 65}}}, {{{1, 1}}, {{127, 127}}}},
      {{{{1, 1}}, {{127, 127}}}, {{{63, 63}}, {{65, 65}}}, {{{64, 64}}, {{64, 64}}}}};
  for (const bool causal : {false, true}) {
    for (const auto& order : orders) {
      const BatchOptions options{
          .causal = causal, .gap = 0, .place = GpuMemory::Place::kBeforeAGuard};
      Batch batch(order[0], options, 1);
      const auto graph = CaptureBoth(batch);
      for (uint32_t i = 0; i < order.size(); ++i) {
        EXPECT_TRUE(Replay(batch, *graph, order[i], 30 + i) ==
                    Eager(order[0], options, order[i], 30 + i))
            << "causal " << causal << ", lengths " << i;
      }
    }
  }
}

// B016: bounds that become wrong under a captured graph are reported and harmless; right ones serve
// again.
TEST_F(AttentionCaptureGpu, LengthsSpoiledUnderAGraphAreReported) {
  const std::vector<SequenceLengths> lengths = {{{64, 64}}, {{100, 100}}};
  Batch batch(lengths, {}, 1);
  const auto graph = CaptureBoth(batch);
  const SegmentRows bad[] = {{0, 0, 1 << 20, 0, 100}, {0, 0, -1, 0, 100},    {0, -8, 100, 0, 100},
                             {0, 0, 100, 0, -1},      {0, 0, 100, 200, 100}, {1, 0, 100, 0, 100}};
  for (const SegmentRows& rows : bad) {
    batch.SetLengths(lengths, 2);
    batch.WriteSegment(1, rows);
    batch.Upload();
    graph->Replay();
    batch.Fetch();
    EXPECT_TRUE(batch.OutputsUntouched());
    const ScheduleHeader header = HeaderOf(batch);
    EXPECT_NE(header.error, kScheduleOk);
    EXPECT_EQ(header.error_sequence, 1);
    EXPECT_FALSE(Replay(batch, *graph, lengths, 3).empty());
    EXPECT_EQ(HeaderOf(batch).error, kScheduleOk);
  }
}

// B083: a graph for each bucket, fifty requests across them.
TEST_F(AttentionCaptureGpu, RequestsAcrossBuckets) {
  constexpr int32_t kBuckets[] = {64, 128, 512, 1024};
  struct Bucket {
    std::vector<SequenceLengths> first;
    BatchOptions options;
    std::unique_ptr<Batch> batch;
    std::unique_ptr<Captured> graph;
  };
  std::vector<Bucket> buckets;
  for (const int32_t rows : kBuckets) {
    Bucket bucket{.first = {{{rows, rows}, {100, 100}}}, .options = {.rows_apart = 101}};
    bucket.batch = std::make_unique<Batch>(bucket.first, bucket.options, 1);
    bucket.graph = CaptureBoth(*bucket.batch);
    buckets.push_back(std::move(bucket));
  }
  std::mt19937 random(89);
  for (uint32_t request = 0; request < 50; ++request) {
    const size_t which = random() % buckets.size();
    Bucket& bucket = buckets[which];
    const auto text = static_cast<int32_t>(random() % (kBuckets[which] + 1));
    const std::vector<SequenceLengths> lengths = {{{text, text}, {100, 100}}};
    EXPECT_TRUE(Replay(*bucket.batch, *bucket.graph, lengths, request) ==
                Eager(bucket.first, bucket.options, lengths, request))
        << "request " << request << ": " << text << " rows in " << kBuckets[which];
  }
}

}  // namespace
}  // namespace segue::kernels
