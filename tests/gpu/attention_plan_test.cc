// Plans on the GPU: however lengths arrive, outputs are the same bytes.
#include "segue/attention_plan.h"
#include "gpu/gpu_rig.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "gpu/plan_rig.h"

namespace segue::attention {
namespace {

class AttentionPlanGpu : public testing::TestWithParam<RigKind> {
 protected:
  void SetUp() override {
    SEGUE_SKIP_WITHOUT_GPU();
    ASSERT_EQ(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (side_ == nullptr) return;
    cudaStreamDestroy(side_);
    cudaStreamDestroy(other_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  // Outputs of one batch by a plan of its own, through SetLengths.
  static std::vector<uint16_t> Eager(PlanRig& rig, const Rows& rows) {
    GpuPlan plan(rig.Settings());
    EXPECT_EQ(plan.failure(), "");
    rig.Clear();
    EXPECT_EQ(plan.SetLengths(rows), "");
    EXPECT_EQ(plan.Run(rig), "");
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return rig.Outputs();
  }

  cudaStream_t side_ = nullptr;
  cudaStream_t other_ = nullptr;
};

std::string NameOf(const testing::TestParamInfo<RigKind>& kind) {
  return kind.param.backend + "_" + std::to_string(kind.param.head_dim);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionPlanGpu,
                         testing::Values(RigKind{"sm90", 128}, RigKind{"cuda", 32},
                                         RigKind{"cuda", 64}, RigKind{"cuda", 128},
                                         RigKind{"cuda", 256}),
                         NameOf);

// What only one back end asks for.
class AttentionSm90PlanGpu : public AttentionPlanGpu {};
INSTANTIATE_TEST_SUITE_P(Sm90, AttentionSm90PlanGpu, testing::Values(RigKind{}), NameOf);

// Memory for one head size only.
class AttentionFarRowsGpu : public AttentionPlanGpu {};
INSTANTIATE_TEST_SUITE_P(Kinds, AttentionFarRowsGpu,
                         testing::Values(RigKind{"sm90", 128}, RigKind{"cuda", 128}), NameOf);

// A captured Refresh and Run.
class Graph {
 public:
  Graph(GpuPlan& plan, const PlanRig& rig, cudaStream_t stream) : stream_(stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(plan.Refresh(stream), "");
    EXPECT_EQ(plan.Run(rig, stream), "");
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  }
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void Replay() {
    EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_P(AttentionPlanGpu, LengthsFromTheHostAndFromTheDeviceGiveTheSameBytes) {
  for (const bool causal : {false, true}) {
    PlanRig rig(GetParam(), causal, 1);
    std::mt19937 random(2);
    GpuPlan host(rig.Settings());
    GpuPlan device(rig.Settings());
    ASSERT_EQ(host.failure() + device.failure(), "");
    EXPECT_EQ(host.plan().backend(), GetParam().backend);
    for (const int32_t sequences : {1, 12, 3, 0, 7, 12}) {
      const Rows rows = rig.RandomBatch(random, sequences);
      rig.Clear();
      ASSERT_EQ(host.SetLengths(rows), "");
      ASSERT_EQ(host.Run(rig), "");
      const std::vector<uint16_t> outputs = rig.Outputs();
      const std::vector<float> lse = rig.Lse();
      ASSERT_EQ(cudaGetLastError(), cudaSuccess);
      EXPECT_EQ(rig.CheckSome(rows, outputs), "") << "causal " << causal << ", " << sequences;

      rig.Clear();
      device.WriteDeviceLengths(rows);
      ASSERT_EQ(device.Refresh(side_), "");
      ASSERT_EQ(device.Run(rig, side_), "");
      EXPECT_TRUE(outputs == rig.Outputs()) << "causal " << causal << ", " << sequences;
      EXPECT_TRUE(lse == rig.Lse()) << "causal " << causal << ", " << sequences;
      const Result<LengthsReport> report = device.plan().ReadReport(device.workspace(), side_);
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->description, "");
    }
  }
}

TEST_P(AttentionPlanGpu, AGraphCapturedWithOneSetReplaysTenOthers) {
  for (const bool causal : {false, true}) {
    PlanRig rig(GetParam(), causal, 3);
    std::mt19937 random(4);
    GpuPlan captured(rig.Settings());
    ASSERT_EQ(captured.failure(), "");
    captured.WriteDeviceLengths(rig.RandomBatch(random, 2));
    Graph graph(captured, rig, side_);
    for (int set = 0; set < 10; ++set) {
      const Rows rows = rig.RandomBatch(random, static_cast<int32_t>(random() % 13));
      captured.WriteDeviceLengths(rows);
      rig.Clear();
      graph.Replay();
      const std::vector<uint16_t> replayed = rig.Outputs();
      const std::vector<float> lse = rig.Lse();
      EXPECT_TRUE(replayed == Eager(rig, rows)) << "causal " << causal << ", set " << set;
      EXPECT_TRUE(lse == rig.Lse()) << "causal " << causal << ", set " << set;
      EXPECT_EQ(rig.CheckSome(rows, replayed), "") << "set " << set;
    }
  }
}

TEST_P(AttentionPlanGpu, ASequencesBytesDoNotDependOnItsCompany) {
  for (const bool causal : {false, true}) {
    PlanRig rig(GetParam(), causal, 5);
    std::mt19937 random(6);
    const Rows one = {{0, 3, 77, 3, 77}, {1, 10, 180, 10, 190}, {2, 5, 0, 5, 41}};
    const std::vector<uint16_t> alone = rig.OutputsOf(one, 0, Eager(rig, one));
    GpuPlan plan(rig.Settings());
    GpuPlan in_graph(rig.Settings());
    ASSERT_EQ(plan.failure() + in_graph.failure(), "");
    in_graph.WriteDeviceLengths(one);
    Graph graph(in_graph, rig, side_);
    for (int trial = 0; trial < 20; ++trial) {
      const int32_t others = 1 + static_cast<int32_t>(random() % 11);
      Rows rows = rig.RandomBatch(random, others, 250);
      // Each position in turn.
      const int32_t at = trial % (others + 1);
      rows.insert(rows.begin() + at * PlanRig::kSegments, one.begin(), one.end());
      rig.Clear();
      ASSERT_EQ(plan.SetLengths(rows), "");
      ASSERT_EQ(plan.Run(rig), "");
      EXPECT_TRUE(rig.OutputsOf(rows, at, rig.Outputs()) == alone)
          << "causal " << causal << ", trial " << trial << ", at " << at << " of " << others + 1;
      rig.Clear();
      in_graph.WriteDeviceLengths(rows);
      graph.Replay();
      EXPECT_TRUE(rig.OutputsOf(rows, at, rig.Outputs()) == alone)
          << "in a graph; causal " << causal << ", trial " << trial << ", at " << at;
    }
  }
}

TEST_P(AttentionPlanGpu, TwoPlansInFlightDoNotMeet) {
  PlanRig first(GetParam(), false, 7);
  PlanRig second(GetParam(), true, 8);
  std::mt19937 random(9);
  const Rows first_rows = first.RandomBatch(random, 12);
  const Rows second_rows = second.RandomBatch(random, 9);
  const std::vector<uint16_t> first_alone = Eager(first, first_rows);
  const std::vector<uint16_t> second_alone = Eager(second, second_rows);
  GpuPlan one(first.Settings());
  GpuPlan two(second.Settings());
  ASSERT_EQ(one.failure() + two.failure(), "");
  two.WriteDeviceLengths(second_rows);
  for (int round = 0; round < 5; ++round) {
    first.Clear();
    second.Clear();
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(one.SetLengths(first_rows, side_), "");
      ASSERT_EQ(two.Refresh(other_), "");
      ASSERT_EQ(one.Run(first, side_), "");
      ASSERT_EQ(two.Run(second, other_), "");
    }
    EXPECT_TRUE(first.Outputs() == first_alone) << "round " << round;
    EXPECT_TRUE(second.Outputs() == second_alone) << "round " << round;
  }
}

// More uploads under way than the ring has slots: none may be overwritten before it was read.
TEST_P(AttentionPlanGpu, UploadsInFlightKeepTheirLengths) {
  constexpr int kBatches = 16;
  PlanRig rig(GetParam(), false, 10, kBatches);
  std::mt19937 random(11);
  std::vector<Rows> batches;
  std::vector<std::vector<uint16_t>> alone;
  for (int i = 0; i < kBatches; ++i) {
    batches.push_back(rig.RandomBatch(random, 1 + i % 12));
    alone.push_back(Eager(rig, batches.back()));
  }
  GpuPlan plan(rig.Settings());
  ASSERT_EQ(plan.failure(), "");
  rig.Clear();
  // A backlog that uploads queue behind.
  ASSERT_EQ(plan.SetLengths(batches[11], side_), "");
  for (int i = 0; i < 200; ++i) ASSERT_EQ(plan.Run(rig, side_, 0, false), "");
  for (int i = 0; i < kBatches; ++i) {
    ASSERT_EQ(plan.SetLengths(batches[i], side_), "");
    ASSERT_EQ(plan.Run(rig, side_, i, false), "");
  }
  for (int i = 1; i < kBatches; ++i) EXPECT_TRUE(rig.Outputs(i) == alone[i]) << "batch " << i;
}

// The largest metadata there is, of which a small batch uses little: it travels in several copies.
TEST_P(AttentionPlanGpu, ASmallBatchInALargeCapacity) {
  PlanRig rig(GetParam(), false, 23);
  std::mt19937 random(24);
  GpuPlan small(rig.Settings());
  PlanSettings settings = rig.Settings();
  settings.max_sequences = 2048;
  settings.max_segments = 32;
  GpuPlan large(settings);
  ASSERT_EQ(small.failure() + large.failure(), "");
  for (int trial = 0; trial < 5; ++trial) {
    const Rows rows = rig.RandomBatch(random, 1 + trial * 2);
    Rows wide;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % PlanRig::kSegments == 0) wide.resize(i / PlanRig::kSegments * 32);
      wide.push_back(rows[i]);
    }
    wide.resize(rows.size() / PlanRig::kSegments * 32);
    const std::vector<uint16_t> expected = Eager(rig, rows);
    rig.Clear();
    ASSERT_EQ(large.SetLengths(wide, side_), "");
    ASSERT_EQ(large.Run(rig, side_), "");
    EXPECT_TRUE(rig.Outputs() == expected) << "from the host, trial " << trial;
    rig.Clear();
    large.WriteDeviceLengths(wide);
    ASSERT_EQ(large.Refresh(side_), "");
    ASSERT_EQ(large.Run(rig, side_), "");
    EXPECT_TRUE(rig.Outputs() == expected) << "from the device, trial " << trial;
  }
}

TEST_P(AttentionPlanGpu, LengthsSetAgainAfterARefreshAreThoseThatCount) {
  PlanRig rig(GetParam(), false, 12);
  std::mt19937 random(13);
  const Rows host = rig.RandomBatch(random, 5);
  const Rows device = rig.RandomBatch(random, 8);
  const std::vector<uint16_t> of_host = Eager(rig, host);
  GpuPlan plan(rig.Settings());
  ASSERT_EQ(plan.failure(), "");
  plan.WriteDeviceLengths(device);
  const auto outputs = [&] {
    rig.Clear();
    EXPECT_EQ(plan.Run(rig, side_), "");
    return rig.Outputs();
  };
  ASSERT_EQ(plan.SetLengths(host, side_), "");
  ASSERT_EQ(plan.SetLengths(host, side_), "");
  EXPECT_TRUE(outputs() == of_host);
  ASSERT_EQ(plan.Refresh(side_), "");
  ASSERT_EQ(plan.SetLengths(host, side_), "");
  EXPECT_TRUE(outputs() == of_host) << "after a refresh";
  Graph graph(plan, rig, side_);
  ASSERT_EQ(plan.SetLengths(host, side_), "");
  graph.Replay();
  ASSERT_EQ(plan.SetLengths(host, side_), "");
  EXPECT_TRUE(outputs() == of_host) << "after a replay that the plan did not see";
}

TEST_P(AttentionPlanGpu, MalformedDeviceLengthsAreReportedAndHarmless) {
  PlanRig rig(GetParam(), false, 14);
  std::mt19937 random(15);
  const Rows good = rig.RandomBatch(random, 6);
  const std::vector<uint16_t> expected = Eager(rig, good);
  GpuPlan plan(rig.Settings());
  ASSERT_EQ(plan.failure(), "");
  struct Case {
    const char* name;
    SegmentRows bad;  // in place of segment 1 of sequence 4
    int32_t sequences;
    int32_t reported;
  };
  const Case cases[] = {{"no such tensor set", {3, 0, 5, 0, 5}, 6, 4},
                        {"a negative tensor set", {-1, 0, 5, 0, 5}, 6, 4},
                        {"negative query rows", {1, 0, -5, 0, 5}, 6, 4},
                        {"negative key rows", {1, 0, 5, 0, -5}, 6, 4},
                        {"query rows past the end", {1, 2599, 2, 0, 5}, 6, 4},
                        {"key rows past the end", {1, 0, 5, 2599, 2}, 6, 4},
                        {"key rows past 2^31", {1, 0, 5, INT32_MAX, INT32_MAX}, 6, 4},
                        {"a negative begin", {1, -1, 5, 0, 5}, 6, 4},
                        {"more sequences than planned", {}, 13, 0},
                        {"far more sequences", {}, INT32_MAX, 0}};
  for (const Case& one : cases) {
    Rows rows = good;
    if (one.bad.q_rows != 0) rows[4 * PlanRig::kSegments + 1] = one.bad;
    plan.WriteDeviceLengths(rows, one.sequences);
    rig.Clear();
    ASSERT_EQ(plan.Refresh(side_), "");
    ASSERT_EQ(plan.Run(rig, side_), "");
    const Result<LengthsReport> report = plan.plan().ReadReport(plan.workspace(), side_);
    ASSERT_TRUE(report.ok());
    EXPECT_NE(report->error, 0) << one.name;
    EXPECT_NE(report->description, "") << one.name;
    EXPECT_EQ(report->sequence, one.reported) << one.name;
    EXPECT_TRUE(rig.Untouched()) << one.name;

    plan.WriteDeviceLengths(good);
    rig.Clear();
    ASSERT_EQ(plan.Refresh(side_), "");
    ASSERT_EQ(plan.Run(rig, side_), "");
    EXPECT_TRUE(rig.Outputs() == expected) << "after " << one.name;
  }
}

TEST_P(AttentionPlanGpu, HeadsMayLieApart) {
  for (const bool causal : {false, true}) {
    PlanRig rig(GetParam(), causal, 16);
    std::mt19937 random(17);
    const Rows rows = rig.RandomBatch(random, 8);
    const std::vector<uint16_t> expected = Eager(rig, rows);
    GpuPlan plan(rig.Settings());
    ASSERT_EQ(plan.failure(), "");
    ASSERT_EQ(plan.SetLengths(rows), "");
    ASSERT_EQ(plan.Run(rig.TransposedSets()), "");
    EXPECT_TRUE(rig.TransposedOutputs() == expected) << "causal " << causal;
  }
}

TEST_P(AttentionSm90PlanGpu, RefusesByNameBeforeAnyLaunch) {
  PlanRig rig(GetParam(), false, 18);
  std::mt19937 random(19);
  GpuPlan plan(rig.Settings());
  ASSERT_EQ(plan.failure(), "");
  ASSERT_EQ(plan.SetLengths(rig.RandomBatch(random, 2)), "");
  std::vector<TensorSet> sets = rig.Sets();
  sets[1].k.data = static_cast<uint16_t*>(sets[1].k.data) + 4;
  EXPECT_NE(plan.Run(sets).find("tensor set 1, k: got a pointer 8 bytes past 16"),
            std::string::npos);
  sets = rig.Sets();
  sets[2].o.row_stride += 4;
  EXPECT_NE(plan.Run(sets).find("tensor set 2, o: got rows 1032 bytes apart"), std::string::npos);
  sets = rig.Sets();
  sets[0].v.head_stride = 132;
  EXPECT_NE(plan.Run(sets).find("tensor set 0, v: got heads 264 bytes apart"), std::string::npos);
  EXPECT_TRUE(rig.Untouched());
}

TEST_P(AttentionPlanGpu, WhatCannotBeReplayedIsRefusedInsideACapture) {
  PlanRig rig(GetParam(), false, 20);
  std::mt19937 random(21);
  const Rows rows = rig.RandomBatch(random, 4);
  const std::vector<uint16_t> expected = Eager(rig, rows);
  GpuPlan plan(rig.Settings());
  ASSERT_EQ(plan.failure(), "");
  plan.WriteDeviceLengths(rows);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(side_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_NE(plan.SetLengths(rows, side_).find("being captured"), std::string::npos);
  EXPECT_FALSE(plan.plan().ReadReport(plan.workspace(), side_).ok());
  EXPECT_FALSE(plan.plan().Prepare(plan.workspace(), side_).ok());
  EXPECT_EQ(plan.Refresh(side_), "");
  EXPECT_EQ(plan.Run(rig, side_), "");
  // The capture outlived the refusals.
  ASSERT_EQ(cudaStreamEndCapture(side_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  rig.Clear();
  ASSERT_EQ(cudaGraphLaunch(executable, side_), cudaSuccess);
  EXPECT_TRUE(rig.Outputs() == expected);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// Rows behind more than 2^31 elements, and outputs too, give the bytes of rows at the front.
TEST_P(AttentionFarRowsGpu, OffsetsPast2To31) {
  constexpr int32_t kFar = 240000;
  constexpr int32_t kNear = 300;
  constexpr int64_t kStride = int64_t{3} * 24 * 128;
  static_assert((kFar - kNear) * kStride > int64_t{1} << 31);
  std::vector<uint16_t> contents(kNear * kStride);
  std::mt19937 random(22);
  for (uint16_t& value : contents) {
    value = static_cast<uint16_t>(0x3e00 + random() % 0x180 + (random() % 2) * 0x8000);
  }
  std::vector<std::vector<uint16_t>> outputs;
  for (const int32_t rows : {kNear, kFar}) {
    const size_t begin = (rows - kNear) * kStride;
    kernels::GpuMemory fused(rows * kStride * 2);
    kernels::GpuMemory output(rows * kStride * 2);
    if (fused.data() == nullptr || output.data() == nullptr) {
      cudaGetLastError();
      GTEST_SKIP() << "no memory for " << 2 * rows * kStride * 2 << " bytes";
    }
    auto* data = static_cast<uint16_t*>(fused.data());
    auto* out = static_cast<uint16_t*>(output.data());
    ASSERT_EQ(cudaMemcpy(data + begin, contents.data(), contents.size() * 2, cudaMemcpyDefault),
              cudaSuccess);
    ASSERT_EQ(cudaMemset(out + begin, 0, contents.size() * 2), cudaSuccess);
    PlanSettings settings;
    settings.options = {.q_heads = 24,
                        .kv_heads = 24,
                        .head_dim = 128,
                        .softmax_scale = 0.0884f,
                        .element_type = ElementType::kBFloat16};
    settings.place = Place::kCuda;
    settings.max_sequences = 1;
    settings.max_segments = 1;
    settings.tensors = {{rows, rows}};
    settings.max_query_rows = kNear;
    settings.backend = GetParam().backend;
    GpuPlan plan(settings);
    ASSERT_EQ(plan.failure(), "");
    ASSERT_EQ(plan.SetLengths({{0, rows - kNear, kNear, rows - kNear, kNear}}), "");
    const TensorSet set{.q = {data, kStride},
                        .k = {data + 24 * 128, kStride},
                        .v = {data + 48 * 128, kStride},
                        .o = {out, kStride},
                        .q_rows = rows,
                        .kv_rows = rows};
    ASSERT_EQ(plan.Run({set}), "");
    outputs.emplace_back(contents.size());
    ASSERT_EQ(
        cudaMemcpy(outputs.back().data(), out + begin, contents.size() * 2, cudaMemcpyDefault),
        cudaSuccess);
  }
  EXPECT_TRUE(outputs[0] == outputs[1]);
  EXPECT_NE(outputs[0][0], 0);
}

}  // namespace
}  // namespace segue::attention
