// Sums of a group on the host: sizes, values, places.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "comm/ranks.h"

namespace segue::comm {
namespace {

constexpr int64_t kWorkspace = 4096;

Group MakeGroup(int size, GroupOptions options = {.workspace_bytes = kWorkspace}) {
  Result<Group> group = Group::OnHost(size, options);
  EXPECT_TRUE(group.ok()) << group.error().Message();
  return std::move(*group);
}

// Sums a contiguous row of `count` elements on every rank and compares.
void ExpectExactSums(const Group& group, int64_t count, DType dtype, int64_t calls = 1) {
  AsRanks(group.size(), [&](int rank) {
    RankContext own;
    std::vector<float> wide(static_cast<size_t>(count));
    std::vector<uint16_t> narrow(static_cast<size_t>(count));
    void* data = dtype == DType::kF32 ? static_cast<void*>(wide.data()) : narrow.data();
    for (int64_t call = 0; call < calls; ++call) {
      for (int64_t i = 0; i < count; ++i) {
        const float value = ExactValue(i, rank, call);
        wide[static_cast<size_t>(i)] = value;
        narrow[static_cast<size_t>(i)] = FloatToBF16(value);
      }
      const Status summed =
          group.rank(rank).AllReduceSum(ContiguousMatrix(data, dtype, 1, count), own.context);
      ASSERT_TRUE(summed.ok()) << summed.error().Message();
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        const float got = dtype == DType::kF32 ? wide[at] : BF16ToFloat(narrow[at]);
        ASSERT_EQ(got, ExactSum(i, group.size(), call)) << i << " of call " << call;
      }
    }
  });
}

TEST(HostGroup, SumsEverySizeAroundTheWorkspace) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const Group group = MakeGroup(ranks);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const auto element = static_cast<int64_t>(SizeOf(dtype));
      for (const int64_t bytes : {int64_t{0}, element, 3 * element, 255 * element, kWorkspace - 16,
                                  kWorkspace, kWorkspace + 16, 3 * kWorkspace + element}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes) + " bytes of " +
                     DTypeName(dtype));
        ExpectExactSums(group, bytes / element, dtype);
      }
    }
  }
}

TEST(HostGroup, KeepsCallsApart) {
  const Group group = MakeGroup(3);
  ExpectExactSums(group, 700, DType::kF32, 2000);
}

// A rank that comes late or leaves early meets no data of another call.
TEST(HostGroup, BearsRandomDelays) {
  const Group group = MakeGroup(2);
  AsRanks(2, [&](int rank) {
    RankContext own;
    std::minstd_rand random(static_cast<uint32_t>(rank) + 1);
    std::vector<float> values(300);
    for (int64_t call = 0; call < 400; ++call) {
      if (random() % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
      for (int64_t i = 0; i < 300; ++i) values[static_cast<size_t>(i)] = ExactValue(i, rank, call);
      ASSERT_TRUE(
          group.rank(rank).AllReduceSum(ContiguousMatrix(values.data(), 1, 300), own.context).ok());
      for (int64_t i = 0; i < 300; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], ExactSum(i, 2, call));
      }
    }
  });
}

TEST(HostGroup, AddsInTheOrderOfTheRanksAndRoundsOnce) {
  // In float32 (1 + 2^24) - 2^24 is 0; any other order gives 1. In bfloat16 256 + 1 + 1 rounded
  // once is 258, rounded twice 256.
  const float wide[3] = {1.0f, 16777216.0f, -16777216.0f};
  const float narrow[3] = {256.0f, 1.0f, 1.0f};
  const Group group = MakeGroup(3);
  AsRanks(3, [&](int rank) {
    RankContext own;
    float value = wide[rank];
    ASSERT_TRUE(group.rank(rank).AllReduceSum(ContiguousMatrix(&value, 1, 1), own.context).ok());
    EXPECT_EQ(value, 0.0f);
    uint16_t half = FloatToBF16(narrow[rank]);
    ASSERT_TRUE(group.rank(rank)
                    .AllReduceSum(ContiguousMatrix(&half, DType::kBF16, 1, 1), own.context)
                    .ok());
    EXPECT_EQ(BF16ToFloat(half), 258.0f);
  });
}

TEST(HostGroup, PassesOnSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const float inputs[2][5] = {{-0.0f, kInf, kInf, kNan, 1.0f}, {-0.0f, 1.0f, -kInf, 2.0f, kNan}};
  const Group group = MakeGroup(2);
  AsRanks(2, [&](int rank) {
    RankContext own;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      std::vector<float> wide(inputs[rank], inputs[rank] + 5);
      std::vector<uint16_t> narrow(5);
      std::transform(wide.begin(), wide.end(), narrow.begin(), FloatToBF16);
      void* data = dtype == DType::kF32 ? static_cast<void*>(wide.data()) : narrow.data();
      ASSERT_TRUE(
          group.rank(rank).AllReduceSum(ContiguousMatrix(data, dtype, 1, 5), own.context).ok());
      if (dtype == DType::kBF16) {
        std::transform(narrow.begin(), narrow.end(), wide.begin(), BF16ToFloat);
      }
      EXPECT_EQ(std::bit_cast<uint32_t>(wide[0]), 0x80000000u);
      EXPECT_EQ(wide[1], kInf);
      EXPECT_TRUE(std::isnan(wide[2]) && std::isnan(wide[3]) && std::isnan(wide[4]));
    }
  });
}

// Rows that lie apart, at addresses of no particular alignment, into another matrix.
TEST(HostGroup, SumsStridedAndUnalignedMatrices) {
  constexpr int64_t kRows = 5, kCols = 13, kFrom = 17, kTo = 15;
  const Group group = MakeGroup(2, {.workspace_bytes = 48});  // in pieces, across rows
  AsRanks(2, [&](int rank) {
    RankContext own;
    std::vector<uint16_t> from(1 + kRows * kFrom, 0x7fc0), to(1 + kRows * kTo, 0x1234);
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      from[static_cast<size_t>(1 + i / kCols * kFrom + i % kCols)] =
          FloatToBF16(ExactValue(i, rank, 0));
    }
    const SumPart part = {.partial = {from.data() + 1, DType::kBF16, kRows, kCols, kFrom},
                          .sum = {to.data() + 1, DType::kBF16, kRows, kCols, kTo}};
    ASSERT_TRUE(group.rank(rank).AllReduceSum({&part, 1}, own.context).ok());
    for (int64_t i = 0; i < kRows * kTo; ++i) {
      const uint16_t got = to[static_cast<size_t>(1 + i)];
      const bool inside = i % kTo < kCols;
      const float want = ExactSum(i / kTo * kCols + i % kTo, 2, 0);
      EXPECT_EQ(got, inside ? FloatToBF16(want) : 0x1234) << i;
    }
    EXPECT_EQ(to[0], 0x1234);
  });
}

TEST(HostGroup, SumsTwoPartsInPlacesOfTheGroup) {
  constexpr int64_t kCounts[2] = {129, 31};
  const Group group = MakeGroup(2);
  AsRanks(2, [&](int rank) {
    RankContext own;
    const void* places[3] = {};
    for (int64_t call = 0; call < 3; ++call) {
      std::vector<float> sums[2] = {std::vector<float>(kCounts[0]), std::vector<float>(kCounts[1])};
      SumPart parts[2];
      for (int i = 0; i < 2; ++i) parts[i].sum = ContiguousMatrix(sums[i].data(), 1, kCounts[i]);
      group.rank(rank).PlacePartials(parts);
      places[call] = parts[0].partial.data;
      for (int i = 0; i < 2; ++i) {
        EXPECT_NE(parts[i].partial.data, parts[i].sum.data);
        for (int64_t e = 0; e < kCounts[i]; ++e) {
          parts[i].partial.Row<float>(0)[e] = ExactValue(e, rank, call + i);
        }
      }
      ASSERT_TRUE(group.rank(rank).AllReduceSum(parts, own.context).ok());
      for (int i = 0; i < 2; ++i) {
        for (int64_t e = 0; e < kCounts[i]; ++e) {
          ASSERT_EQ(sums[i][static_cast<size_t>(e)], ExactSum(e, 2, call + i));
        }
      }
    }
    EXPECT_NE(places[0], places[1]);
    EXPECT_EQ(places[0], places[2]);
    // What does not fit stays where it is.
    std::vector<float> large(kWorkspace / sizeof(float) + 1);
    SumPart part = {.sum = ContiguousMatrix(large.data(), 1, static_cast<int64_t>(large.size()))};
    group.rank(rank).PlacePartials({&part, 1});
    EXPECT_EQ(part.partial.data, large.data());
    EXPECT_EQ(own.log.Snapshot().at("all_reduce").at(0).calls, 3);
  });
}

TEST(HostGroup, RunsWithSeveralThreadsARank) {
  constexpr int64_t kCount = 100'003;
  const Group group = MakeGroup(2, {.workspace_bytes = 1 << 20});
  AsRanks(2, [&](int rank) {
    ThreadPool pool(3);
    std::vector<float> values(kCount);
    for (int64_t i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = ExactValue(i, rank, 9);
    ASSERT_TRUE(
        group.rank(rank)
            .AllReduceSum(ContiguousMatrix(values.data(), 1, kCount), {.stream = Stream::Cpu(pool)})
            .ok());
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[static_cast<size_t>(i)], ExactSum(i, 2, 9));
    }
  });
}

TEST(HostGroup, TwoGroupsRunAtOnce) {
  const Group first = MakeGroup(2);
  const Group second = MakeGroup(2);
  std::thread other([&] { ExpectExactSums(second, 400, DType::kBF16, 300); });
  ExpectExactSums(first, 500, DType::kF32, 300);
  other.join();
}

// The chain that a fused implementation has to reproduce.
TEST(HostGroup, SumsThenNormalises) {
  constexpr int64_t kRows = 3, kCols = 40;
  const Group group = MakeGroup(2);
  std::vector<float> results[2][2];  // of a rank: h, y
  const auto random = [](int64_t count, uint32_t seed) {
    std::minstd_rand engine(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(engine() % 2000) / 1000.0f - 1.0f;
    return values;
  };
  std::vector<float> table = random(3 * kCols, 5);
  const auto slice = [&table](int64_t i) {
    return kernels::RowTable{.data = table.data() + i * kCols, .rows = 1, .stride = 3 * kCols};
  };
  AsRanks(2, [&](int rank) {
    RankContext own;
    std::vector<float> branch = random(kRows * kCols, static_cast<uint32_t>(10 + rank));
    std::vector<float> h = random(kRows * kCols, 7), y(h.size());
    kernels::ModulatedNormStream stream = {.branch = ContiguousMatrix(branch.data(), kRows, kCols),
                                           .gate = slice(0),
                                           .h = ContiguousMatrix(h.data(), kRows, kCols),
                                           .scale = slice(1),
                                           .shift = slice(2),
                                           .y = ContiguousMatrix(y.data(), kRows, kCols)};
    ASSERT_EQ(Text(group.rank(rank).SumAndModulatedNorm({.streams = {&stream, 1}}, own.context)),
              "");
    results[rank][0] = h;
    results[rank][1] = y;
    stream.branch = {};
    EXPECT_EQ(Text(group.rank(rank).SumAndModulatedNorm({.streams = {&stream, 1}}, own.context)),
              "all-reduce: branch: got none, wanted a partial sum for every stream");
  });
  EXPECT_EQ(results[0][0], results[1][0]);
  EXPECT_EQ(results[0][1], results[1][1]);
  // By hand.
  const std::vector<float> a = random(kRows * kCols, 10), b = random(kRows * kCols, 11);
  std::vector<float> sum(a.size()), h = random(kRows * kCols, 7), y(h.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  const kernels::ModulatedNormStream stream = {.branch = ContiguousMatrix(sum.data(), kRows, kCols),
                                               .gate = slice(0),
                                               .h = ContiguousMatrix(h.data(), kRows, kCols),
                                               .scale = slice(1),
                                               .shift = slice(2),
                                               .y = ContiguousMatrix(y.data(), kRows, kCols)};
  RankContext own;
  ASSERT_TRUE(kernels::ModulatedNorm({.streams = {&stream, 1}}, own.context).ok());
  EXPECT_EQ(results[0][0], h);
  EXPECT_EQ(results[0][1], y);
}

TEST(HostGroup, RefusesWhatItCannotBe) {
  const auto message = [](int size, const GroupOptions& options) {
    const Result<Group> group = Group::OnHost(size, options);
    return group.ok() ? "" : group.error().Message();
  };
  EXPECT_EQ(message(0, {}), "make a group: ranks: got 0, wanted 1 to 8");
  EXPECT_EQ(message(9, {}), "make a group: ranks: got 9, wanted 1 to 8");
  EXPECT_EQ(message(2, {.workspace_bytes = 40}),
            "make a group: workspace: got 40 bytes, wanted a multiple of 16");
  EXPECT_EQ(message(2, {.time_limit = std::chrono::milliseconds(0)}),
            "make a group: time limit: got 0 ms, wanted at least 1 ms");
}

}  // namespace
}  // namespace segue::comm
