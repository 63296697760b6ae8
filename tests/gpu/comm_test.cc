// Sums of a group of GPUs: sizes, values, places, graphs, and the fused sum against the chain.
#include <barrier>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "comm/gpu_communicator.h"
#include "device/gpu_graph.h"
#include "gpu/comm_kernels.h"
#include "gpu/comm_rig.h"

namespace segue::comm {
namespace {

using Comm = GpuGroupTest;

float ValueOf(int64_t i, int rank, int64_t call) {
  return static_cast<float>((7 * i + 5 * rank + 3 * call) % 31);
}
float SumOf(int64_t i, int ranks, int64_t call) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += ValueOf(i, rank, call);
  return sum;
}

std::vector<uint16_t> ValuesOf(int64_t count, int rank, int64_t call) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = FloatToBF16(ValueOf(i, rank, call));
  }
  return values;
}
std::vector<uint16_t> SumsOf(int64_t count, int ranks, int64_t call) {
  std::vector<uint16_t> sums(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    sums[static_cast<size_t>(i)] = FloatToBF16(SumOf(i, ranks, call));
  }
  return sums;
}

TEST_F(Comm, ReachesPeers) {
  for (const size_t size : Sizes()) {
    Make(size);
    EXPECT_EQ(group_->peer_access_refusal(), "");
  }
}

TEST_F(Comm, SumsEverySizeUpToTheWorkspace) {
  constexpr int64_t kWorkspace = 1 << 20;
  for (const size_t size : Sizes()) {
    Make(size, {.workspace_bytes = kWorkspace});
    const int ranks = static_cast<int>(size);
    int64_t calls = 0;
    for (const int64_t bytes :
         {int64_t{0}, int64_t{16}, int64_t{4080}, int64_t{393216}, kWorkspace - 16, kWorkspace}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes) + " bytes");
      calls += 3;
      const std::string failed = Run([&](RankRig& rig) {
        const int64_t count = bytes / 2;
        const RankMemory memory(rig, 2 * kWorkspace + 512);
        const MatrixView in = rig.Row(memory, DType::kBF16, count);
        const MatrixView out = rig.Row(memory, DType::kBF16, count, kWorkspace / 2);
        for (int64_t call = 0; call < 3; ++call) {
          rig.Write(in, ValuesOf(count, rig.rank, call));
          const SumPart part = {.partial = in, .sum = out};
          EXPECT_EQ(Text(rig.communicator->AllReduceSum({&part, 1}, rig.context)), "");
          EXPECT_EQ(rig.Read<uint16_t>(out), SumsOf(count, ranks, call));
        }
        // Nothing behind the sum was touched.
        const MatrixView behind = rig.Row(memory, DType::kBF16, 8, kWorkspace / 2 + count);
        EXPECT_EQ(rig.Read<uint16_t>(behind), std::vector<uint16_t>(8, 0xffff));
        EXPECT_EQ(rig.Ran(), (ranks == 2 ? "one_shot " : "two_shot ") + std::to_string(calls));
      });
      EXPECT_EQ(failed, "");
    }
  }
}

// What the kernels do not serve goes to NCCL, with the reason; without NCCL it is an error with all
// reasons. Either way the group works on.
TEST_F(Comm, LeavesTheRestToNccl) {
  constexpr int64_t kWorkspace = 1 << 20;
  struct Odd {
    const char* reason;
    int64_t count;
    int64_t begin;
  };
  constexpr Odd kOdd[] = {
      {"more bytes than the workspace", kWorkspace / 2 + 8, 0},
      {"no multiple of 16 bytes", 7, 0},
      {"not aligned to 16 bytes", 64, 1},
  };
  for (const Odd& odd : kOdd) {
    SCOPED_TRACE(odd.reason);
    Make(2, {.workspace_bytes = kWorkspace});
    const std::string failed = Run([&](RankRig& rig) {
      const RankMemory memory(rig, 4 * kWorkspace);
      const MatrixView view = rig.Row(memory, DType::kBF16, odd.count, odd.begin);
      rig.Write(view, ValuesOf(odd.count, rig.rank, 1));
      const Status status = rig.communicator->AllReduceSum(view, rig.context);
      if (status.ok()) {
        EXPECT_EQ(rig.Read<uint16_t>(view), SumsOf(odd.count, 2, 1));
        const auto entry = rig.log.Snapshot().at("all_reduce").at(0);
        EXPECT_EQ(entry.kernel, "nccl");
        EXPECT_NE(entry.passed_over.at(0).find(odd.reason), std::string::npos)
            << entry.passed_over.at(0);
      } else {
        EXPECT_NE(Text(status).find(odd.reason), std::string::npos) << Text(status);
        EXPECT_NE(Text(status).find("load NCCL"), std::string::npos) << Text(status);
      }
      const MatrixView even = rig.Row(memory, DType::kBF16, 64);
      rig.Write(even, ValuesOf(64, rig.rank, 2));
      EXPECT_EQ(Text(rig.communicator->AllReduceSum(even, rig.context)), "");
      EXPECT_EQ(rig.Read<uint16_t>(even), SumsOf(64, 2, 2));
    });
    EXPECT_EQ(failed, "");
  }
}

// Rounded once, in the order of the ranks, the same on all: against the same arithmetic here.
TEST_F(Comm, GivesTheBitsOfTheDefinition) {
  constexpr int64_t kCount = 100'000;
  const auto random = [](int rank) {
    std::minstd_rand engine(static_cast<uint32_t>(rank) + 1);
    std::vector<uint16_t> values(kCount);
    for (uint16_t& value : values) {
      const float sign = engine() % 2 == 0 ? 1.0f : -1.0f;
      const auto exponent = static_cast<int>(engine() % 12) - 6;
      value = FloatToBF16(sign * std::ldexp(static_cast<float>(engine() % 256), exponent));
    }
    return values;
  };
  for (const size_t size : Sizes()) {
    Make(size);
    std::vector<uint16_t> want(kCount);
    std::vector<float> sums(kCount);
    for (int rank = 0; rank < static_cast<int>(size); ++rank) {
      const std::vector<uint16_t> values = random(rank);
      for (size_t i = 0; i < want.size(); ++i) {
        const float wide = BF16ToFloat(values[i]);
        sums[i] = rank == 0 ? wide : sums[i] + wide;
        want[i] = FloatToBF16(sums[i]);
      }
    }
    const std::string failed = Run([&](RankRig& rig) {
      const RankMemory memory(rig, kCount * 4);
      const MatrixView view = rig.Row(memory, DType::kBF16, kCount);
      rig.Write(view, random(rig.rank));
      EXPECT_EQ(Text(rig.communicator->AllReduceSum(view, rig.context)), "");
      EXPECT_EQ(rig.Read<uint16_t>(view), want);
      // And in float32, exactly.
      const MatrixView wide = rig.Row(memory, DType::kF32, kCount);
      std::vector<float> values(kCount);
      const std::vector<uint16_t> narrow = random(rig.rank);
      std::transform(narrow.begin(), narrow.end(), values.begin(), BF16ToFloat);
      rig.Write(wide, values);
      EXPECT_EQ(Text(rig.communicator->AllReduceSum(wide, rig.context)), "");
      EXPECT_EQ(rig.Read<float>(wide), sums);
    });
    EXPECT_EQ(failed, "");
  }
}

TEST_F(Comm, PassesOnSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> inputs[2] = {{-0.0f, kInf, kInf, nan, 1, -0.0f, 3e38f, 1e-40f},
                                        {-0.0f, 1, -kInf, 2, nan, 0.0f, 3e38f, 1e-40f}};
  Make(2);
  const std::string failed = Run([&](RankRig& rig) {
    const RankMemory memory(rig, 256);
    std::vector<uint16_t> values(8);
    std::transform(inputs[rig.rank].begin(), inputs[rig.rank].end(), values.begin(), FloatToBF16);
    const MatrixView view = rig.Row(memory, DType::kBF16, 8);
    rig.Write(view, values);
    EXPECT_EQ(Text(rig.communicator->AllReduceSum(view, rig.context)), "");
    const std::vector<uint16_t> sums = rig.Read<uint16_t>(view);
    EXPECT_EQ(sums[0], 0x8000);
    EXPECT_EQ(BF16ToFloat(sums[1]), kInf);
    for (const size_t i : {2, 3, 4}) EXPECT_TRUE(std::isnan(BF16ToFloat(sums[i])));
    EXPECT_EQ(sums[5], 0);
    EXPECT_EQ(BF16ToFloat(sums[6]), kInf);
    EXPECT_EQ(BF16ToFloat(sums[7]), 2 * RoundToBF16(1e-40f));
  });
  EXPECT_EQ(failed, "");
}

TEST_F(Comm, ReplaysGraphsOfEvenAndOddCalls) {
  constexpr int64_t kCount = 4096;
  for (const size_t size : Sizes()) {
    for (const int64_t calls : {1, 2, 5, 60}) {
      SCOPED_TRACE(std::to_string(size) + " ranks, " + std::to_string(calls) + " calls");
      Make(size);
      const std::string failed = Run([&](RankRig& rig) {
        const RankMemory sums(rig, calls * kCount * 2);
        const RankMemory counters(rig, 256);
        auto* call = counters.data<uint32_t>();
        uint32_t* wrong = call + 1;
        EXPECT_EQ(Text(SetToZero(call, 8, rig.stream.get())), "");
        const auto enqueue = [&]() -> Status {
          for (int64_t i = 0; i < calls; ++i) {
            SumPart part = {.sum = rig.Row(sums, DType::kBF16, kCount, i * kCount)};
            rig.communicator->PlacePartials({&part, 1});
            EXPECT_NE(part.partial.data, part.sum.data);
            LaunchFill(static_cast<uint16_t*>(part.partial.data), kCount, rig.rank, call,
                       rig.stream.get());
            SEGUE_RETURN_IF_ERROR(rig.communicator->AllReduceSum({&part, 1}, rig.context));
            LaunchCheck(static_cast<uint16_t*>(part.sum.data), kCount, rig.communicator->size(),
                        call, wrong, rig.stream.get());
          }
          return rig.communicator->EndRun(rig.context);
        };
        EXPECT_EQ(Text(enqueue()), "");
        const Result<GpuGraph> graph = GpuGraph::Capture(rig.stream, enqueue);
        ASSERT_TRUE(graph.ok()) << graph.error().Message();
        EXPECT_EQ(graph->nodes().kernels, 4 * calls + calls % 2);
        EXPECT_EQ(graph->nodes().copies, 0);
        for (int i = 0; i < 100; ++i) EXPECT_EQ(Text(graph->Launch(rig.stream)), "");
        EXPECT_EQ(Text(enqueue()), "");
        uint32_t found[2] = {};
        EXPECT_EQ(Text(ReadBack(found, call, 8, rig.stream.get())), "");
        EXPECT_EQ(found[0], 102 * calls);
        EXPECT_EQ(found[1], 0u);
        EXPECT_EQ(Text(rig.communicator->health()), "");
      });
      EXPECT_EQ(failed, "");
    }
  }
}

TEST_F(Comm, RefusesASecondStream) {
  Make(2);
  const std::string failed = Run([&](RankRig& rig) {
    const RankMemory memory(rig, 256);
    const MatrixView view = rig.Row(memory, DType::kBF16, 8);
    const GpuStream other = *GpuStream::Create();
    EXPECT_EQ(Text(rig.communicator->AllReduceSum(view, rig.context)), "");
    const std::string message =
        Text(rig.communicator->AllReduceSum(view, {.stream = other.stream()}));
    EXPECT_NE(message.find("got a second stream"), std::string::npos) << message;
    EXPECT_EQ(Text(rig.communicator->AllReduceSum(view, rig.context)), "");
  });
  EXPECT_EQ(failed, "");
}

TEST_F(Comm, TwoGroupsRunAtOnce) {
  constexpr int64_t kCount = 1 << 19;
  Make(2);
  const std::vector<int> devices = {0, 1};
  const Result<Group> second = Group::OnGpus(devices);
  ASSERT_TRUE(second.ok());
  const auto threads = RankThreads::Start(*second);
  ASSERT_TRUE(threads.ok());
  // Allocating waits for a device, and with it for the other group: before any rank starts and
  // after all are done.
  std::barrier<> all(4);
  const auto body = [&](RankRig& rig) {
    const RankMemory memory(rig, kCount * 2);
    const RankMemory counters(rig, 256);
    auto* call = counters.data<uint32_t>();
    EXPECT_EQ(Text(SetToZero(call, 8, rig.stream.get())), "");
    all.arrive_and_wait();
    for (int i = 0; i < 1000; ++i) {
      SumPart part = {.sum = rig.Row(memory, DType::kBF16, kCount)};
      rig.communicator->PlacePartials({&part, 1});
      LaunchFill(static_cast<uint16_t*>(part.partial.data), kCount, rig.rank, call,
                 rig.stream.get());
      EXPECT_EQ(Text(rig.communicator->AllReduceSum({&part, 1}, rig.context)), "");
      LaunchCheck(memory.data<uint16_t>(), kCount, 2, call, call + 1, rig.stream.get());
    }
    uint32_t found[2] = {};
    EXPECT_EQ(Text(ReadBack(found, call, 8, rig.stream.get())), "");
    EXPECT_EQ(found[1], 0u);
    EXPECT_EQ(Text(rig.communicator->health()), "");
    all.arrive_and_wait();
  };
  std::thread other([&] {
    EXPECT_EQ(Text((*threads)->Run([&](int rank) -> Status {
                RankRig rig(*second, rank);
                body(rig);
                return {};
              })),
              "");
  });
  EXPECT_EQ(Run(body), "");
  other.join();
}

// Two streams of rows, two requests; the fused sum beside the chain of plain kernels.
TEST_F(Comm, FusedGivesTheBytesOfTheChain) {
  constexpr int64_t kRows[2] = {1300, 70};
  constexpr int32_t kRequests = 2;
  for (const int64_t cols : {8, 264, 3072, 4096}) {
    for (const kernels::Rounding rounding : {kernels::Rounding::kBF16, kernels::Rounding::kNone}) {
      SCOPED_TRACE(cols);
      Make(2);
      const auto random = [](int64_t count, uint32_t seed) {
        std::minstd_rand engine(seed);
        std::vector<uint16_t> values(static_cast<size_t>(count));
        for (uint16_t& value : values) {
          value = FloatToBF16(static_cast<float>(engine() % 4001) / 1000.0f - 2.0f);
        }
        return values;
      };
      const std::string failed = Run([&](RankRig& rig) {
        const int64_t all = (kRows[0] + kRows[1]) * cols;
        const RankMemory branch(rig, all * 2), h(rig, all * 2), y(rig, all * 2),
            table(rig, 3 * kRequests * cols * 2), index(rig, kRows[0] * 4);
        std::vector<int32_t> requests(kRows[0]);
        for (size_t i = 0; i < requests.size(); ++i) {
          requests[i] = static_cast<int32_t>(i) % kRequests;
        }
        rig.Write(rig.Row(index, DType::kI32, kRows[0]), requests);
        rig.Write(rig.Row(table, DType::kBF16, 3 * kRequests * cols),
                  random(3 * kRequests * cols, 5));
        std::vector<uint16_t> results[2][2];
        for (const bool reference : {false, true}) {
          rig.Write(rig.Row(branch, DType::kBF16, all),
                    random(all, static_cast<uint32_t>(10 + rig.rank)));
          rig.Write(rig.Row(h, DType::kBF16, all), random(all, 7));
          std::vector<kernels::ModulatedNormStream> streams;
          for (int i = 0; i < 2; ++i) {
            const auto view = [&](const RankMemory& memory) {
              return ContiguousMatrix(memory.data<uint16_t>() + (i == 0 ? 0 : kRows[0] * cols),
                                      DType::kBF16, kRows[i], cols);
            };
            const auto slice = [&](int64_t part) {
              return kernels::RowTable{.data = table.data<uint16_t>() + part * cols,
                                       .rows = kRequests,
                                       .stride = 3 * cols,
                                       .index = index.data<int32_t>()};
            };
            streams.push_back({.branch = view(branch),
                               .gate = slice(0),
                               .h = view(h),
                               .scale = slice(1),
                               .shift = slice(2),
                               .y = view(y)});
          }
          kernels::Context context = rig.context;
          context.reference_only = reference;
          EXPECT_EQ(Text(rig.communicator->SumAndModulatedNorm(
                        {.streams = streams, .rounding = rounding}, context)),
                    "");
          results[reference][0] = rig.Read<uint16_t>(rig.Row(h, DType::kBF16, all));
          results[reference][1] = rig.Read<uint16_t>(rig.Row(y, DType::kBF16, all));
        }
        EXPECT_EQ(results[0][0], results[1][0]);
        EXPECT_EQ(results[0][1], results[1][1]);
        EXPECT_NE(rig.Ran("sum_modulated_norm").find("fused 1"), std::string::npos);
        EXPECT_NE(rig.Ran("sum_modulated_norm").find("composed 1"), std::string::npos);
      });
      EXPECT_EQ(failed, "");
    }
  }
}

}  // namespace
}  // namespace segue::comm
