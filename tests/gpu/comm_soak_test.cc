// Many replays with ranks that come at random times: no sum may hold anything of another call.
#include "device/gpu_graph.h"
#include "gpu/comm_kernels.h"
#include "gpu/comm_rig.h"

namespace segue::comm {
namespace {

using CommSoak = GpuGroupTest;

struct Soak {
  std::vector<int64_t> counts;  // bfloat16 elements, of a graph's calls
  uint32_t most_delay_ns = 0;
  int64_t replays = 0;
};

// Bounds what waits in a stream.
constexpr int64_t kAhead = 200;

void RunSoak(RankRig& rig, const Soak& soak) {
  const int64_t most = *std::max_element(soak.counts.begin(), soak.counts.end());
  const RankMemory sums(rig, most * 2);
  const RankMemory counters(rig, 256);
  auto* call = counters.data<uint32_t>();
  EXPECT_EQ(Text(SetToZero(call, 8, rig.stream.get())), "");
  const Result<GpuGraph> graph = GpuGraph::Capture(rig.stream, [&]() -> Status {
    for (const int64_t count : soak.counts) {
      LaunchDelay(call, rig.rank, soak.most_delay_ns, rig.stream.get());
      SumPart part = {.sum = rig.Row(sums, DType::kBF16, count)};
      rig.communicator->PlacePartials({&part, 1});
      LaunchFill(static_cast<uint16_t*>(part.partial.data), count, rig.rank, call,
                 rig.stream.get());
      SEGUE_RETURN_IF_ERROR(rig.communicator->AllReduceSum({&part, 1}, rig.context));
      LaunchCheck(sums.data<uint16_t>(), count, rig.communicator->size(), call, call + 1,
                  rig.stream.get());
    }
    return rig.communicator->EndRun(rig.context);
  });
  ASSERT_TRUE(graph.ok()) << graph.error().Message();
  for (int64_t i = 0; i < soak.replays; ++i) {
    ASSERT_EQ(Text(graph->Launch(rig.stream)), "");
    if (i % kAhead != kAhead - 1) continue;
    ASSERT_EQ(Text(rig.stream.Synchronize()), "");
  }
  uint32_t found[2] = {};
  EXPECT_EQ(Text(ReadBack(found, call, 8, rig.stream.get())), "");
  EXPECT_EQ(found[0], soak.replays * static_cast<int64_t>(soak.counts.size()));
  EXPECT_EQ(found[1], 0u);
  EXPECT_EQ(Text(rig.communicator->health()), "");
}

TEST_F(CommSoak, AHundredThousandReplays) {
  Make(2);
  EXPECT_EQ(Run([](RankRig& rig) {
              RunSoak(rig, {.counts = {32'768, 8}, .most_delay_ns = 20'000, .replays = 100'000});
            }),
            "");
}

TEST_F(CommSoak, LargeAndSmallMessages) {
  Make(2);
  EXPECT_EQ(Run([](RankRig& rig) {
              RunSoak(
                  rig,
                  {.counts = {12'582'912, 8, 196'608}, .most_delay_ns = 200'000, .replays = 2'000});
            }),
            "");
}

TEST_F(CommSoak, MoreRanks) {
  if (AllGpus().size() < 3) GTEST_SKIP() << "three GPUs are needed";
  Make(AllGpus().size());
  EXPECT_EQ(Run([](RankRig& rig) {
              RunSoak(
                  rig,
                  {.counts = {32'776, 8, 1'048'576}, .most_delay_ns = 20'000, .replays = 20'000});
            }),
            "");
}

}  // namespace
}  // namespace segue::comm
