// Groups on the host in which something goes wrong: every call ends, and says what happened.
#include <atomic>
#include <chrono>

#include "comm/ranks.h"

namespace segue::comm {
namespace {

using std::chrono::milliseconds;

Group MakeGroup(int size, milliseconds limit) {
  Result<Group> group = Group::OnHost(size, {.workspace_bytes = 1024, .time_limit = limit});
  EXPECT_TRUE(group.ok());
  return std::move(*group);
}

Status SumTen(const Communicator& communicator, int64_t count = 10) {
  RankContext own;
  std::vector<float> values(static_cast<size_t>(count), 1.0f);
  return communicator.AllReduceSum(ContiguousMatrix(values.data(), 1, count), own.context);
}

TEST(HostFailure, ARankThatNeverArrivesIsNamedInTime) {
  const Group group = MakeGroup(3, milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  // Rank 2's thread ends without its second call.
  AsRanks(3, [&](int rank) {
    EXPECT_EQ(Text(SumTen(group.rank(rank))), "");
    if (rank == 2) return;
    const std::string message = Text(SumTen(group.rank(rank)));
    const std::string operation = "all-reduce on rank " + std::to_string(rank) + " of 3: ";
    // One of the two finds the time up; the other may find that one's failure first.
    EXPECT_EQ(message.find(operation + "call 2, 40 bytes: got "), 0u) << message;
    EXPECT_TRUE(message.find("no rank 2, wanted every rank within 50 ms") != std::string::npos ||
                message.find("failed at call 2") != std::string::npos)
        << message;
    // And so it stays.
    EXPECT_EQ(Text(group.rank(rank).health()), message);
    EXPECT_EQ(Text(SumTen(group.rank(rank))), message);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10'000));
}

TEST(HostFailure, RanksThatDisagreeAboutTheSizeAreTold) {
  const Group group = MakeGroup(2, milliseconds(10'000));
  AsRanks(2, [&](int rank) {
    const std::string message = Text(SumTen(group.rank(rank), rank == 0 ? 10 : 11));
    EXPECT_NE(message.find(rank == 0 ? "40 bytes: got 44 bytes on rank 1"
                                     : "44 bytes: got 40 bytes on rank 0"),
              std::string::npos)
        << message;
  });
}

TEST(HostFailure, AFailedRankReleasesTheOthers) {
  const Group group = MakeGroup(2, milliseconds(60'000));
  AsRanks(2, [&](int rank) {
    if (rank == 1) {
      group.rank(1).Fail({.operation = "a reason"});
      EXPECT_EQ(Text(SumTen(group.rank(1))), "a reason");
      return;
    }
    const std::string message = Text(SumTen(group.rank(0)));
    EXPECT_NE(message.find("call 1, 40 bytes: got rank 1 failed at call 0"), std::string::npos)
        << message;
  });
}

TEST(HostFailure, ASecondThreadIsRefusedAndNothingIsBroken) {
  const Group group = MakeGroup(2, milliseconds(60'000));
  std::atomic<int> refused{0};
  const auto call = [&] {
    const std::string message = Text(SumTen(group.rank(0)));
    if (message.empty()) return;
    EXPECT_NE(message.find("a second thread while a call is under way"), std::string::npos)
        << message;
    ++refused;
  };
  // One of the two waits for rank 1, which comes once the other was refused.
  std::thread first(call);
  std::thread second(call);
  while (refused == 0) std::this_thread::yield();
  EXPECT_EQ(Text(SumTen(group.rank(1))), "");
  first.join();
  second.join();
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(Text(group.rank(0).health()), "");
  AsRanks(2, [&](int rank) { EXPECT_EQ(Text(SumTen(group.rank(rank))), ""); });
}

TEST(HostFailure, BadPartsAreRefusedAndNothingIsBroken) {
  const Group group = MakeGroup(2, milliseconds(60'000));
  RankContext own;
  float values[8] = {};
  const SumPart shapes = {.partial = ContiguousMatrix(values, 2, 2),
                          .sum = ContiguousMatrix(values, 1, 4)};
  EXPECT_EQ(Text(group.rank(0).AllReduceSum({&shapes, 1}, own.context)),
            "all-reduce: partial: got [2, 2] F32, wanted [1, 4] F32");
  const SumPart many[3] = {};
  EXPECT_EQ(Text(group.rank(0).AllReduceSum(many, own.context)),
            "all-reduce: parts: got 3, wanted at most 2");
  EXPECT_EQ(
      Text(group.rank(0).AllReduceSum(ContiguousMatrix(values, DType::kI32, 1, 4), own.context)),
      "all-reduce: values: got I32, wanted F32 or BF16");
  AsRanks(2, [&](int rank) { EXPECT_EQ(Text(SumTen(group.rank(rank))), ""); });
}

TEST(HostFailure, OneGroupsFailureIsNotAnothers) {
  const Group broken = MakeGroup(2, milliseconds(10));
  const Group sound = MakeGroup(2, milliseconds(60'000));
  EXPECT_FALSE(SumTen(broken.rank(0)).ok());
  AsRanks(2, [&](int rank) { EXPECT_EQ(Text(SumTen(sound.rank(rank))), ""); });
}

}  // namespace
}  // namespace segue::comm
