// Groups of GPUs in which something goes wrong: every call ends, says what happened, and the
// process goes on.
#include <chrono>
#include <stdexcept>

#include "device/gpu_graph.h"
#include "gpu/comm_rig.h"

namespace segue::comm {
namespace {

using CommFailure = GpuGroupTest;
using std::chrono::milliseconds;

constexpr int64_t kCount = 4096;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Ones on every rank, summed and read back.
std::vector<uint16_t> SumOnes(RankRig& rig, Status* status) {
  const RankMemory memory(rig, kCount * 2);
  const MatrixView view = rig.Row(memory, DType::kBF16, kCount);
  rig.Write(view, std::vector<uint16_t>(kCount, FloatToBF16(1.0f)));
  *status = rig.communicator->AllReduceSum(view, rig.context);
  return rig.Read<uint16_t>(view);
}

void ExpectSound(RankRig& rig) {
  Status status;
  const std::vector<uint16_t> sums = SumOnes(rig, &status);
  EXPECT_EQ(Text(status), "");
  const auto ranks = static_cast<float>(rig.communicator->size());
  EXPECT_EQ(sums, std::vector<uint16_t>(kCount, FloatToBF16(ranks)));
}

// Two more groups are made on the same GPUs, one in which a rank fails and one that is sound.
TEST_F(CommFailure, ARankThatNeverArrivesIsNamedInTime) {
  Make(2, {.time_limit = milliseconds(300)});
  EXPECT_EQ(Run(ExpectSound), "");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Run([](RankRig& rig) {
              if (rig.rank == 1) return;
              Status status;
              EXPECT_EQ(SumOnes(rig, &status), std::vector<uint16_t>(kCount, 0xffff));
              EXPECT_EQ(Text(status), "");  // it was enqueued
              EXPECT_EQ(Text(rig.communicator->health()),
                        "all-reduce on rank 0 of 2: call 2, 8192 bytes: got no rank 1, wanted "
                        "every rank within 300 ms");
              EXPECT_FALSE(rig.communicator->AllReduceSum(MatrixView{}, rig.context).ok());
            }),
            "");
  EXPECT_LT(SecondsSince(start), 5.0);
  // Late, rank 1 hears of it instead of waiting.
  EXPECT_EQ(
      Run([](RankRig& rig) {
        if (rig.rank == 0) return;
        Status status;
        EXPECT_EQ(SumOnes(rig, &status), std::vector<uint16_t>(kCount, 0xffff));
        const std::string message = Text(rig.communicator->health());
        EXPECT_NE(message.find("call 2, 8192 bytes: got failure of rank 1"), std::string::npos)
            << message;
      }),
      "");
  Make(2);
  EXPECT_EQ(Run(ExpectSound), "");
}

// A graph that was recorded while all was well ends too, with NaNs.
TEST_F(CommFailure, AReplayWithoutItsPeerEnds) {
  Make(2, {.time_limit = milliseconds(300)});
  EXPECT_EQ(Run([](RankRig& rig) {
              const RankMemory memory(rig, kCount * 2);
              const MatrixView view = rig.Row(memory, DType::kBF16, kCount);
              const Result<GpuGraph> graph = GpuGraph::Capture(rig.stream, [&]() -> Status {
                SEGUE_RETURN_IF_ERROR(rig.communicator->AllReduceSum(view, rig.context));
                return rig.communicator->EndRun(rig.context);
              });
              ASSERT_TRUE(graph.ok()) << graph.error().Message();
              const int replays = rig.rank == 0 ? 5 : 3;
              for (int i = 0; i < replays; ++i) EXPECT_EQ(Text(graph->Launch(rig.stream)), "");
              EXPECT_EQ(Text(rig.stream.Synchronize()), "");
              if (rig.rank == 1) return;
              EXPECT_EQ(rig.Read<uint16_t>(view), std::vector<uint16_t>(kCount, 0xffff));
              const std::string message = Text(rig.communicator->health());
              EXPECT_NE(message.find("call 7, 8192 bytes: got no rank 1"), std::string::npos)
                  << message;
            }),
            "");
  Make(2);
  EXPECT_EQ(Run(ExpectSound), "");
}

TEST_F(CommFailure, ARankThatThrowsStopsTheOthers) {
  Make(2, {.time_limit = milliseconds(60'000)});
  EXPECT_EQ(Run(ExpectSound), "");
  const auto start = std::chrono::steady_clock::now();
  const std::string failed = Run([](RankRig& rig) {
    if (rig.rank == 1) throw std::runtime_error("no more paper");
    Status status;
    EXPECT_EQ(SumOnes(rig, &status), std::vector<uint16_t>(kCount, 0xffff));
    EXPECT_FALSE(rig.communicator->health().ok());
  });
  EXPECT_EQ(failed, "run rank 1: got an exception: no more paper, wanted a status");
  EXPECT_LT(SecondsSince(start), 10.0);
  Make(2);
  EXPECT_EQ(Run(ExpectSound), "");
}

TEST_F(CommFailure, OneGroupsFailureIsNotAnothers) {
  Make(2, {.time_limit = milliseconds(100)});
  const std::vector<int> devices = {0, 1};
  const Result<Group> broken = Group::OnGpus(devices, {.time_limit = milliseconds(100)});
  ASSERT_TRUE(broken.ok()) << broken.error().Message();
  EXPECT_EQ(Run([&](RankRig& rig) {
              if (rig.rank == 0) {
                RankRig other(*broken, 0);
                Status status;
                EXPECT_EQ(SumOnes(other, &status), std::vector<uint16_t>(kCount, 0xffff));
                EXPECT_FALSE(other.communicator->health().ok());
              }
            }),
            "");
  EXPECT_EQ(Run(ExpectSound), "");
}

// As where GPUs cannot read each other's memory: NCCL serves, or the error has all reasons.
TEST_F(CommFailure, WithoutPeerAccessSumsGoToNccl) {
  Make(2, {.without_peer_access = true});
  EXPECT_EQ(group_->peer_access_refusal(), "peer access was not asked for");
  EXPECT_EQ(
      Run([](RankRig& rig) {
        Status status;
        const std::vector<uint16_t> sums = SumOnes(rig, &status);
        if (status.ok()) {
          EXPECT_EQ(sums, std::vector<uint16_t>(kCount, FloatToBF16(2.0f)));
          EXPECT_EQ(rig.Ran(), "nccl 1");
          return;
        }
        EXPECT_NE(Text(status).find("GPUs do not reach each other's memory"), std::string::npos)
            << Text(status);
        EXPECT_NE(Text(status).find("load NCCL"), std::string::npos) << Text(status);
      }),
      "");
}

TEST_F(CommFailure, BadDevicesAreRefused) {
  const auto message = [](const std::vector<int>& devices) {
    const Result<Group> group = Group::OnGpus(devices);
    return group.ok() ? std::string() : group.error().Message();
  };
  EXPECT_NE(message({0, 0}).find("devices: got one device twice"), std::string::npos);
  EXPECT_NE(message({0, 99}), "");
  EXPECT_NE(message({}).find("ranks: got 0"), std::string::npos);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

}  // namespace
}  // namespace segue::comm
