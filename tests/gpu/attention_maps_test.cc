// What a launch keeps for the next one, tensor maps and the kernel's settings, is never out of
// date.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/gpu_rig.h"
#include "gpu/plan_rig.h"

namespace segue::attention {
namespace {

using kernels::GpuMemory;

constexpr int64_t kElement = 2;
constexpr int64_t kDim = 128;

class AttentionMapsGpu : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }
};

// Views of fresh memory with the rows that the sets' Q, K and V view, at addresses of which no map
// was ever made; outputs stay where they are. `memory` keeps what it is given: an address that came
// back would not be fresh.
std::vector<TensorSet> Gather(const std::vector<TensorSet>& sets, const Options& options,
                              std::vector<std::unique_ptr<GpuMemory>>& memory) {
  std::vector<TensorSet> gathered = sets;
  const auto gather = [&](RowsView& view, int64_t rows, int64_t heads) {
    const int64_t row_bytes = heads * kDim * kElement;
    memory.push_back(std::make_unique<GpuMemory>(rows * row_bytes));
    auto* to = static_cast<uint8_t*>(memory.back()->data());
    const auto* from = static_cast<const uint8_t*>(view.data);
    const int64_t head_stride = view.head_stride == 0 ? kDim : view.head_stride;
    for (int64_t head = 0; head < heads; ++head) {
      EXPECT_EQ(
          cudaMemcpy2D(to + head * kDim * kElement, row_bytes, from + head * head_stride * kElement,
                       view.row_stride * kElement, kDim * kElement, rows, cudaMemcpyDefault),
          cudaSuccess);
    }
    view = {to, heads * kDim};
  };
  for (TensorSet& set : gathered) {
    gather(set.q, set.q_rows, options.q_heads);
    gather(set.k, set.kv_rows, options.kv_heads);
    gather(set.v, set.kv_rows, options.kv_heads);
  }
  return gathered;
}

// The first `rows` rows of each set.
std::vector<TensorSet> FirstRows(std::vector<TensorSet> sets, const PlanSettings& settings) {
  for (size_t i = 0; i < sets.size(); ++i) {
    sets[i].q_rows = settings.tensors[i].q_rows;
    sets[i].kv_rows = settings.tensors[i].kv_rows;
  }
  return sets;
}

std::vector<uint16_t> RunOnce(GpuPlan& plan, PlanRig& rig, const std::vector<TensorSet>& sets) {
  rig.Clear();
  EXPECT_EQ(plan.Run(sets), "");
  return rig.Outputs();
}

struct Variant {
  std::string name;
  std::vector<TensorSet> sets;
};

// `base` with one field of one of Q, K and V changed, each such that other numbers are read.
std::vector<Variant> Variants(const std::vector<TensorSet>& base,
                              const std::vector<TensorSet>& other) {
  std::vector<Variant> variants;
  struct Part {
    const char* name;
    RowsView TensorSet::* view;
  };
  for (const Part& part :
       {Part{"q", &TensorSet::q}, Part{"k", &TensorSet::k}, Part{"v", &TensorSet::v}}) {
    const auto add = [&](const char* change) -> RowsView& {
      variants.push_back({std::string(part.name) + ", another " + change, base});
      return variants.back().sets[1].*part.view;
    };
    add("pointer").data = (other[1].*part.view).data;
    add("row stride").row_stride *= 2;
    add("head stride").head_stride = 2 * kDim;
  }
  return variants;
}

TEST_F(AttentionMapsGpu, PointersAndStridesMayChangeFromCallToCall) {
  PlanRig rig(RigKind{}, false, 31);
  PlanRig other(RigKind{}, false, 32);
  PlanSettings settings = rig.Settings();
  // Half the rows and less, so that twice the stride stays inside; a head further on stays inside
  // the memory too.
  settings.tensors = {{340, 340}, {1290, 1290}, {240, 240}};
  const Rows rows = {{0, 3, 77, 3, 77},    {1, 10, 180, 10, 190},   {2, 5, 0, 5, 41},
                     {0, 90, 129, 90, 64}, {1, 300, 353, 300, 353}, {2, 60, 8, 60, 9}};
  const std::vector<TensorSet> base = FirstRows(rig.Sets(), settings);
  const std::vector<Variant> variants = Variants(base, FirstRows(other.Sets(), settings));
  std::vector<std::unique_ptr<GpuMemory>> memory;
  // Maps of both kinds of plan are of the same tensors and differ in their boxes.
  for (const bool causal : {false, true}) {
    settings.options.causal = causal;
    GpuPlan plan(settings);
    ASSERT_EQ(plan.failure(), "");
    ASSERT_EQ(plan.SetLengths(rows), "");
    const std::vector<uint16_t> outputs = RunOnce(plan, rig, base);
    if (!causal) {
      EXPECT_EQ(rig.CheckSome(rows, outputs), "");
    }
    EXPECT_TRUE(outputs == RunOnce(plan, rig, Gather(base, settings.options, memory)))
        << "causal " << causal;
    for (const Variant& variant : variants) {
      EXPECT_TRUE(outputs == RunOnce(plan, rig, base)) << "before " << variant.name;
      const std::vector<uint16_t> changed = RunOnce(plan, rig, variant.sets);
      EXPECT_FALSE(changed == outputs) << "causal " << causal << ": " << variant.name;
      EXPECT_TRUE(changed == RunOnce(plan, rig, Gather(variant.sets, settings.options, memory)))
          << "causal " << causal << ": " << variant.name;
    }
  }
}

// A map's extent is the tensor's rows: rows behind those of an earlier plan must not read as zeros.
TEST_F(AttentionMapsGpu, PlansOverTheSameMemoryMayHaveOtherRows) {
  PlanRig rig(RigKind{}, false, 33);
  const PlanSettings settings = rig.Settings();
  const Rows rows = {{0, 400, 250, 400, 300}, {1, 1400, 353, 1400, 1200}, {2, 260, 130, 260, 240}};
  const Rows first_rows = {{0, 0, 130, 0, 200}, {1, 1, 9, 1, 180}, {2, 7, 20, 7, 0}};
  for (const bool whole : {false, true}) {
    PlanSettings part = settings;
    if (!whole) part.tensors.assign(settings.tensors.size(), {200, 200});
    GpuPlan plan(part);
    ASSERT_EQ(plan.failure(), "");
    ASSERT_EQ(plan.SetLengths(whole ? rows : first_rows), "");
    const std::vector<uint16_t> outputs = RunOnce(plan, rig, FirstRows(rig.Sets(), part));
    EXPECT_EQ(rig.CheckSome(whole ? rows : first_rows, outputs), "") << "whole " << whole;
  }
}

TEST_F(AttentionMapsGpu, PlansOverTheSameMemoryMayHaveOtherHeads) {
  PlanRig rig(RigKind{}, false, 34);
  const Rows rows = {{0, 3, 77, 3, 77}, {1, 10, 180, 10, 190}, {2, 5, 0, 5, 41}};
  std::vector<std::unique_ptr<GpuMemory>> memory;
  PlanSettings settings = rig.Settings();
  for (const int32_t heads : {1, 2, 4}) {
    settings.options.q_heads = heads;
    settings.options.kv_heads = (heads + 1) / 2;
    GpuPlan plan(settings);
    ASSERT_EQ(plan.failure(), "");
    ASSERT_EQ(plan.SetLengths(rows), "");
    const std::vector<uint16_t> outputs = RunOnce(plan, rig, rig.Sets());
    EXPECT_TRUE(outputs == RunOnce(plan, rig, Gather(rig.Sets(), settings.options, memory)))
        << heads << " heads";
  }
}

// A captured launch holds its maps by value.
TEST_F(AttentionMapsGpu, AGraphKeepsItsTensorsWhateverIsLaunchedAfter) {
  PlanRig rig(RigKind{}, false, 35);
  const PlanSettings settings = rig.Settings();
  std::mt19937 random(36);
  const Rows rows = rig.RandomBatch(random, 8);
  GpuPlan plan(settings);
  ASSERT_EQ(plan.failure(), "");
  ASSERT_EQ(plan.SetLengths(rows), "");
  const std::vector<uint16_t> outputs = RunOnce(plan, rig, rig.Sets());
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(plan.Run(rig.Sets(), stream), "");
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  std::vector<std::unique_ptr<GpuMemory>> memory;
  for (int i = 0; i < 8; ++i) {  // 24 tensor sets
    EXPECT_TRUE(RunOnce(plan, rig, Gather(rig.Sets(), settings.options, memory)) == outputs)
        << "copy " << i;
  }
  rig.Clear();
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_TRUE(rig.Outputs() == outputs);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

std::string RunAndCheck() {
  PlanRig rig(RigKind{}, false, 37);
  const Rows rows = {{0, 3, 77, 3, 77}, {1, 10, 180, 10, 190}, {2, 5, 0, 5, 41}};
  GpuPlan plan(rig.Settings());
  if (!plan.failure().empty()) return plan.failure();
  std::string wrong = plan.SetLengths(rows);
  if (wrong.empty()) wrong = plan.Run(rig.Sets());
  return wrong.empty() ? rig.CheckSome(rows, rig.Outputs()) : wrong;
}

// In a process of its own: the reset takes the memory of everybody in it.
TEST_F(AttentionMapsGpu, ADeviceMayBeReset) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto reset_between = [] {
    std::string wrong = RunAndCheck();
    if (wrong.empty() && cudaDeviceReset() != cudaSuccess) wrong = "no reset";
    if (wrong.empty()) wrong = RunAndCheck();
    std::cerr << wrong << "\n";
    std::exit(wrong.empty() ? 0 : 1);
  };
  EXPECT_EXIT(reset_between(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace segue::attention
