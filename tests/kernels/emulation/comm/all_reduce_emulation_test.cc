// The sources of src/kernels/cuda/comm on the host, threads as GPUs.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/all_reduce.h"
#include "kernels/cuda/rows/rows.h"

namespace segue::kernels {
namespace {

constexpr int64_t kBuffer = 64 << 10;
constexpr int64_t kControl = (sizeof(PeerControl) + 255) / 256 * 256;
constexpr uint64_t kLongNs = 60'000'000'000;

const Context kContext = {.stream = Stream::Cuda(nullptr)};

// Arenas as comm/gpu_communicator lays them out, and what calls alternate.
class Ranks {
 public:
  explicit Ranks(int count, uint64_t time_limit_ns = kLongNs) : failures_(count) {
    for (int rank = 0; rank < count; ++rank) {
      arenas_.emplace_back(static_cast<size_t>(kControl + 3 * kBuffer) / sizeof(uint4Words));
    }
    for (int rank = 0; rank < count; ++rank) {
      PeerGroup group = {.rank = rank,
                         .ranks = count,
                         .reduced_offset = kControl + 2 * kBuffer,
                         .time_limit_ns = time_limit_ns,
                         .failure = &failures_[static_cast<size_t>(rank)]};
      for (int peer = 0; peer < count; ++peer) {
        group.arena[peer] = reinterpret_cast<char*>(arenas_[static_cast<size_t>(peer)].data());
      }
      groups_.push_back(group);
    }
  }

  int size() const { return static_cast<int>(groups_.size()); }
  const PeerGroup& group(int rank) const { return groups_[static_cast<size_t>(rank)]; }
  const PeerFailure& failure(int rank) const { return failures_[static_cast<size_t>(rank)]; }
  static int64_t Offset(int64_t call) { return kControl + call % 2 * kBuffer; }
  template <typename T>
  T* Partial(int rank, int64_t offset) const {
    return reinterpret_cast<T*>(group(rank).arena[rank] + offset);
  }

  template <typename Body>
  void Run(const Body& body) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct alignas(256) uint4Words {
    char bytes[256];
  };
  std::vector<std::vector<uint4Words>> arenas_;
  std::vector<PeerFailure> failures_;
  std::vector<PeerGroup> groups_;
};

float Value(int64_t element, int rank, int64_t call) {
  return static_cast<float>((element * 7 + rank * 5 + call * 3) % 31);
}
float Sum(int64_t element, int ranks, int64_t call) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += Value(element, rank, call);
  return sum;
}

Status AllReduce(const AllReduceParams& params) {
  return params.group.ranks == 2 ? OneShotAllReduce(params, kContext)
                                 : TwoShotAllReduce(params, kContext);
}

// Two parts a call, other sizes, grids and unrolling from call to call, canaries behind each sum.
void RunCalls(const Ranks& ranks, int64_t calls, DType dtype) {
  constexpr int64_t kSizes[][2] = {{0, 0}, {16, 0}, {4096, 16}, {1008, 2032}, {16, 9600}};
  constexpr ReduceTuning kTunings[] = {{3, 32, 1}, {1, 64, 2}, {5, 32, 4}};
  const auto element = static_cast<int64_t>(SizeOf(dtype));
  ranks.Run([&](int rank) {
    alignas(16) static thread_local char sums[2][10'240];
    for (int64_t call = 0; call < calls; ++call) {
      AllReduceParams params = {.group = ranks.group(rank),
                                .part_count = 2,
                                .dtype = dtype,
                                .tuning = kTunings[call % 3]};
      int64_t offset = Ranks::Offset(call);
      for (int part = 0; part < 2; ++part) {
        const int64_t bytes = kSizes[call % 5][part];
        params.parts[part] = {offset, sums[part], bytes};
        for (int64_t i = 0; i < bytes / element; ++i) {
          const float value = Value(i, rank, call + part);
          if (dtype == DType::kF32) ranks.Partial<float>(rank, offset)[i] = value;
          if (dtype == DType::kBF16) ranks.Partial<uint16_t>(rank, offset)[i] = FloatToBF16(value);
        }
        offset += bytes;
        std::memset(sums[part], 0xa5, sizeof(sums[part]));
      }
      ASSERT_TRUE(AllReduce(params).ok());
      for (int part = 0; part < 2; ++part) {
        const int64_t bytes = params.parts[part].bytes;
        for (int64_t i = 0; i < bytes / element; ++i) {
          const float got = dtype == DType::kF32
                                ? reinterpret_cast<const float*>(sums[part])[i]
                                : BF16ToFloat(reinterpret_cast<const uint16_t*>(sums[part])[i]);
          ASSERT_EQ(got, Sum(i, ranks.size(), call + part)) << call << ", " << part << ", " << i;
        }
        ASSERT_EQ(static_cast<uint8_t>(sums[part][bytes]), 0xa5);
      }
    }
  });
  for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(ranks.failure(rank).state, 0u);
}

TEST(EmulatedAllReduce, OneShotSumsTwoRanks) {
  RunCalls(Ranks(2), 60, DType::kBF16);
  RunCalls(Ranks(2), 15, DType::kF32);
}

TEST(EmulatedAllReduce, TwoShotSumsMoreRanks) {
  for (const int count : {3, 4, 6, 8}) {
    SCOPED_TRACE(count);
    RunCalls(Ranks(count), count == 3 ? 45 : 15, DType::kBF16);
  }
  RunCalls(Ranks(3), 15, DType::kF32);
}

TEST(EmulatedAllReduce, AddsInTheOrderOfTheRanksAndRoundsOnce) {
  const Ranks ranks(3);
  ranks.Run([&](int rank) {
    constexpr float kNarrow[3] = {256.0f, 1.0f, 1.0f};
    constexpr float kWide[3] = {1.0f, 16777216.0f, -16777216.0f};
    alignas(16) uint16_t narrow[8];
    alignas(16) float wide[4];
    AllReduceParams params = {.group = ranks.group(rank), .part_count = 1, .tuning = {1, 32, 1}};
    params.parts[0] = {Ranks::Offset(0), narrow, sizeof(narrow)};
    std::fill_n(ranks.Partial<uint16_t>(rank, Ranks::Offset(0)), 8, FloatToBF16(kNarrow[rank]));
    ASSERT_TRUE(AllReduce(params).ok());
    for (const uint16_t sum : narrow) EXPECT_EQ(BF16ToFloat(sum), 258.0f);
    params.dtype = DType::kF32;
    params.parts[0] = {Ranks::Offset(1), wide, sizeof(wide)};
    std::fill_n(ranks.Partial<float>(rank, Ranks::Offset(1)), 4, kWide[rank]);
    ASSERT_TRUE(AllReduce(params).ok());
    for (const float sum : wide) EXPECT_EQ(sum, 0.0f);
  });
}

// Rank 1 of three never comes: the others' calls end, their sums are NaNs, and everybody knows.
TEST(EmulatedAllReduce, EndsWithoutARankThatDoesNotCome) {
  const Ranks ranks(3, 20'000'000);
  alignas(16) static uint16_t sums[3][512];
  ranks.Run([&](int rank) {
    AllReduceParams params = {.group = ranks.group(rank), .part_count = 1, .tuning = {2, 32, 1}};
    params.parts[0] = {Ranks::Offset(0), sums[rank], sizeof(sums[rank])};
    if (rank == 1) return;
    ASSERT_TRUE(AllReduce(params).ok());
  });
  for (const int rank : {0, 2}) {
    for (const uint16_t sum : sums[rank]) ASSERT_EQ(sum, 0xffff);
    const PeerFailure& failure = ranks.failure(rank);
    EXPECT_EQ(failure.state, 1u);
    EXPECT_EQ(failure.blamed, 1u);
    EXPECT_EQ(failure.call, 1u);
    EXPECT_EQ(failure.bytes, sizeof(sums[rank]));
  }
  EXPECT_EQ(ranks.failure(1).state, 0u);
  // Late, it finds out at once.
  AllReduceParams params = {.group = ranks.group(1), .part_count = 1, .tuning = {2, 32, 1}};
  params.group.time_limit_ns = kLongNs;
  params.parts[0] = {Ranks::Offset(0), sums[1], sizeof(sums[1])};
  ASSERT_TRUE(AllReduce(params).ok());
  for (const uint16_t sum : sums[1]) ASSERT_EQ(sum, 0xffff);
  EXPECT_EQ(ranks.failure(1).state, 1u);
  EXPECT_EQ(ranks.failure(1).blamed, 1u);
  EXPECT_EQ(ranks.failure(1).told, 1u);
}

// A call between two ranks of which one fails first and the other one is waiting already.
TEST(EmulatedAllReduce, HearsOfAFailureWhileItWaits) {
  const Ranks ranks(2);
  alignas(16) uint16_t sum[8];
  std::thread waiting([&] {
    AllReduceParams params = {.group = ranks.group(0), .part_count = 1, .tuning = {1, 32, 1}};
    params.parts[0] = {Ranks::Offset(0), sum, sizeof(sum)};
    ASSERT_TRUE(AllReduce(params).ok());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto* control = reinterpret_cast<PeerControl*>(ranks.group(0).arena[0]);
  std::atomic_ref(control->failed).store(2);
  waiting.join();
  EXPECT_EQ(sum[0], 0xffff);
  EXPECT_EQ(ranks.failure(0).blamed, 1u);
  EXPECT_EQ(ranks.failure(0).told, 1u);
}

std::vector<uint16_t> Random(int64_t count, uint32_t seed) {
  std::minstd_rand engine(seed);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    value = FloatToBF16(static_cast<float>(engine() % 4001) / 1000.0f - 2.0f);
  }
  return values;
}

// Rows of two streams with modulation of their own, as a block has.
struct NormCase {
  static constexpr int64_t kRows[2] = {7, 3};
  static constexpr int64_t kRequests = 2;

  explicit NormCase(int64_t width) : cols(width), table(Random(3 * kRequests * width, 3)) {
    for (int64_t i = 0; i < 2; ++i) {
      h.push_back(Random(kRows[i] * cols, static_cast<uint32_t>(4 + i)));
      y.emplace_back(h.back().size());
      for (int64_t row = 0; row < kRows[i]; ++row) {
        index[i].push_back(static_cast<int32_t>(row % kRequests));
      }
    }
  }

  std::vector<ModulatedNormStream> Streams(std::vector<std::vector<uint16_t>>* branches) {
    std::vector<ModulatedNormStream> streams;
    for (size_t i = 0; i < 2; ++i) {
      const auto slice = [&](int64_t part) {
        return RowTable{.data = table.data() + part * cols,
                        .rows = kRequests,
                        .stride = 3 * cols,
                        .index = index[i].data()};
      };
      const auto view = [&](std::vector<uint16_t>& values) {
        return ContiguousMatrix(values.data(), DType::kBF16, kRows[i], cols);
      };
      streams.push_back({.branch = view((*branches)[i]),
                         .gate = slice(0),
                         .h = view(h[i]),
                         .scale = slice(1),
                         .shift = slice(2),
                         .y = view(y[i])});
    }
    return streams;
  }

  int64_t cols;
  std::vector<uint16_t> table;
  std::vector<int32_t> index[2];
  std::vector<std::vector<uint16_t>> h, y;
};

TEST(EmulatedAllReduce, FusedGivesTheBytesOfTheChain) {
  for (const int64_t cols : {8, 256, 264, 768}) {
    for (const Rounding rounding : {Rounding::kBF16, Rounding::kNone}) {
      SCOPED_TRACE(cols);
      const auto partial = [&](int rank, int64_t i) {
        return Random(NormCase::kRows[i] * cols, static_cast<uint32_t>(20 + 2 * rank + i));
      };
      // The chain: the sum in memory, then the norm.
      NormCase chain(cols);
      std::vector<std::vector<uint16_t>> sums;
      for (int64_t i = 0; i < 2; ++i) {
        const std::vector<uint16_t> a = partial(0, i), b = partial(1, i);
        sums.emplace_back();
        for (size_t e = 0; e < a.size(); ++e) {
          sums.back().push_back(FloatToBF16(BF16ToFloat(a[e]) + BF16ToFloat(b[e])));
        }
      }
      const auto want = chain.Streams(&sums);
      ASSERT_TRUE(cuda::ModulatedNorm({.streams = want, .rounding = rounding}, kContext).ok());

      const Ranks ranks(2);
      std::vector<NormCase> fused(2, NormCase(cols));
      ranks.Run([&](int rank) {
        std::vector<std::vector<uint16_t>> unused(2, {0});  // it is there; where, the kernel knows
        const auto streams = fused[static_cast<size_t>(rank)].Streams(&unused);
        SumNormParams params = {.group = ranks.group(rank),
                                .norm = {.streams = streams, .rounding = rounding},
                                .ctas = 4};
        for (int64_t i = 0; i < 2; ++i) {
          params.offsets[i] = Ranks::Offset(0) + i * (kBuffer / 2);
          const std::vector<uint16_t> own = partial(rank, i);
          std::copy(own.begin(), own.end(), ranks.Partial<uint16_t>(rank, params.offsets[i]));
        }
        ASSERT_TRUE(SumModulatedNorm(params, kContext).ok());
      });
      for (const NormCase& one : fused) {
        EXPECT_EQ(one.h, chain.h);
        EXPECT_EQ(one.y, chain.y);
      }
    }
  }
}

TEST(EmulatedAllReduce, WarmUpAndProbesRun) {
  ASSERT_TRUE(WarmReduce(Stream::Cuda(nullptr)).ok());
  const Result<ReduceRoom> room = MaxReduceCtas(512);
  ASSERT_TRUE(room.ok());
  EXPECT_EQ(room->one_shot, 2 * 4 / kGroupsAtOnce);
  const Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(WriteProbes(ranks.group(rank), 70, Stream::Cuda(nullptr)).ok());
  }
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(ReadProbes(ranks.group(rank), Stream::Cuda(nullptr)).ok());
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto& control = *reinterpret_cast<PeerControl*>(ranks.group(rank).arena[rank]);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(control.probe[peer], peer == rank ? 0u : 70u + static_cast<uint32_t>(peer));
      EXPECT_EQ(control.probe_read[peer], peer == rank ? 0u : 70u + static_cast<uint32_t>(rank));
    }
  }
}

}  // namespace
}  // namespace segue::kernels
