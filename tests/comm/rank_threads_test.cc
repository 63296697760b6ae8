#include <chrono>
#include <set>
#include <stdexcept>

#include "comm/ranks.h"

namespace segue::comm {
namespace {

struct Rig {
  explicit Rig(int size)
      : group(*Group::OnHost(size, {.workspace_bytes = 1024})),
        threads(*RankThreads::Start(group)) {}
  Group group;
  std::unique_ptr<RankThreads> threads;
};

TEST(RankThreads, KeepsAThreadARank) {
  const Rig rig(3);
  std::vector<std::thread::id> first(3), second(3);
  ASSERT_TRUE(rig.threads
                  ->Run([&](int rank) -> Status {
                    first[static_cast<size_t>(rank)] = std::this_thread::get_id();
                    return {};
                  })
                  .ok());
  ASSERT_TRUE(rig.threads
                  ->Run([&](int rank) -> Status {
                    second[static_cast<size_t>(rank)] = std::this_thread::get_id();
                    return {};
                  })
                  .ok());
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 3u);
}

Status SumOnce(const Group& group, int rank) {
  RankContext own;
  float value = 1.0f;
  SEGUE_RETURN_IF_ERROR(group.rank(rank).AllReduceSum(ContiguousMatrix(&value, 1, 1), own.context));
  EXPECT_EQ(value, static_cast<float>(group.size()));
  return {};
}

// Far within the ten seconds after which a rank that waits gives up by itself.
void ExpectQuickly(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(RankThreads, ARankThatThrowsStopsTheOthers) {
  const Rig rig(3);
  ExpectQuickly([&] {
    const Status status = rig.threads->Run([&](int rank) -> Status {
      SEGUE_RETURN_IF_ERROR(SumOnce(rig.group, rank));
      if (rank == 1) throw std::runtime_error("no more paper");
      return SumOnce(rig.group, rank);
    });
    EXPECT_EQ(Text(status), "run rank 1: got an exception: no more paper, wanted a status");
  });
  // The group knows; another one works on.
  EXPECT_FALSE(rig.threads->Run([&](int rank) { return SumOnce(rig.group, rank); }).ok());
  const Rig other(3);
  EXPECT_TRUE(other.threads->Run([&](int rank) { return SumOnce(other.group, rank); }).ok());
}

TEST(RankThreads, ARankThatFailsStopsTheOthers) {
  const Rig rig(2);
  ExpectQuickly([&] {
    const Status status = rig.threads->Run([&](int rank) -> Status {
      if (rank == 0) return Error{.operation = "read a file"};
      return SumOnce(rig.group, rank);
    });
    EXPECT_EQ(Text(status), "read a file");
  });
}

TEST(RankThreads, SurvivesAnythingThrown) {
  const Rig rig(2);
  const Status status = rig.threads->Run([&](int rank) -> Status {
    if (rank == 0) throw 7;  // NOLINT: that is the point
    return {};
  });
  EXPECT_EQ(Text(status), "run rank 0: got an exception: of an unknown type, wanted a status");
}

}  // namespace
}  // namespace segue::comm
