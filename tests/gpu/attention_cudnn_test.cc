// Plans served by cuDNN, judged against the reference on the CPU from the same 16-bit inputs.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "gpu/attention_case.h"
#include "gpu/gpu_memory.h"
#include "kernels/attention_cudnn.h"
#include "segue/attention_plan.h"

namespace segue::attention {
namespace {

using kernels::GpuMemory;
using Rows = std::vector<SegmentRows>;

constexpr uint16_t kCanary = 0x7fc1;  // a NaN in both types
constexpr int32_t kRows[] = {70, 333, 40};
constexpr int32_t kSegments = 3;

std::string MessageOf(const Status& status) { return status.ok() ? "" : status.error().Message(); }

// Tensor sets of so many rows each, slices of a fused tensor each, on the host and on the GPU.
class Rig {
 public:
  Rig(const Options& options, int64_t offset, uint32_t seed,
      std::vector<int32_t> row_counts = {std::begin(kRows), std::end(kRows)})
      : options_(options), offset_(offset), rows_(std::move(row_counts)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (const int32_t rows : rows_) {
      std::vector<uint16_t> fused(rows * Stride() + offset);
      for (uint16_t& value : fused) {
        const float x = uniform(random);
        value = options.element_type == ElementType::kFloat16 ? FloatToF16(x) : FloatToBF16(x);
      }
      fused_.push_back(std::move(fused));
      device_fused_.push_back(std::make_unique<GpuMemory>(fused_.back().size() * 2));
      device_fused_.back()->Write(fused_.back().data());
      out_.emplace_back(rows * OutStride() + offset, kCanary);
      device_out_.push_back(std::make_unique<GpuMemory>(out_.back().size() * 2));
    }
  }

  PlanSettings Settings(Place place) const {
    PlanSettings settings;
    settings.options = options_;
    settings.place = place;
    settings.max_sequences = 8;
    settings.max_segments = static_cast<int32_t>(rows_.size());
    for (const int32_t rows : rows_) settings.tensors.push_back({rows, rows});
    settings.wants_lse = true;
    settings.backend = place == Place::kCuda ? "cudnn" : "ref";
    return settings;
  }

  std::vector<TensorSet> Sets(Place place) {
    std::vector<TensorSet> sets;
    const int64_t dim = options_.head_dim;
    for (size_t i = 0; i < fused_.size(); ++i) {
      auto* fused = place == Place::kCuda ? static_cast<uint16_t*>(device_fused_[i]->data())
                                          : fused_[i].data();
      auto* out =
          place == Place::kCuda ? static_cast<uint16_t*>(device_out_[i]->data()) : out_[i].data();
      fused += offset_;
      sets.push_back({.q = {fused, Stride()},
                      .k = {fused + options_.q_heads * dim, Stride()},
                      .v = {fused + (options_.q_heads + options_.kv_heads) * dim, Stride()},
                      .o = {out + offset_, OutStride()},
                      .q_rows = rows_[i],
                      .kv_rows = rows_[i]});
    }
    return sets;
  }

  void Clear() {
    for (size_t i = 0; i < out_.size(); ++i) {
      std::fill(out_[i].begin(), out_[i].end(), kCanary);
      device_out_[i]->Write(out_[i].data());
    }
  }

  std::vector<std::vector<uint16_t>> DeviceOutputs() const {
    std::vector<std::vector<uint16_t>> outputs;
    for (size_t i = 0; i < out_.size(); ++i) {
      outputs.emplace_back(out_[i].size());
      device_out_[i]->Read(outputs.back().data());
    }
    return outputs;
  }
  const std::vector<std::vector<uint16_t>>& HostOutputs() const { return out_; }

  // Empty when the GPU's outputs are the host's to rounding, canaries included.
  std::string Compare() const {
    // Values up to 1: weights and the output are rounded once each.
    const double allowed = options_.element_type == ElementType::kFloat16 ? 2e-3 : 1.2e-2;
    const auto outputs = DeviceOutputs();
    for (size_t s = 0; s < out_.size(); ++s) {
      for (size_t i = 0; i < out_[s].size(); ++i) {
        const uint16_t got = outputs[s][i];
        const uint16_t want = out_[s][i];
        if (got == want) continue;
        if (want != kCanary && std::abs(double{Value(got)} - Value(want)) <= allowed) continue;
        return "tensor " + std::to_string(s) + " row " + std::to_string(i / OutStride()) +
               " column " + std::to_string(i % OutStride()) + ": got " +
               std::to_string(Value(got)) + ", wanted " + std::to_string(Value(want));
      }
    }
    return "";
  }

  int64_t lse_stride() const { return std::accumulate(rows_.begin(), rows_.end(), int64_t{0}); }
  int64_t Stride() const {
    return int64_t{options_.q_heads + 2 * options_.kv_heads} * options_.head_dim;
  }
  int64_t OutStride() const { return int64_t{options_.q_heads} * options_.head_dim; }

 private:
  float Value(uint16_t bits) const {
    return options_.element_type == ElementType::kFloat16 ? F16ToFloat(bits) : BF16ToFloat(bits);
  }

  Options options_;
  int64_t offset_;  // elements before the tensors: 4 makes every pointer 8 bytes past 16
  std::vector<int32_t> rows_;
  std::vector<std::vector<uint16_t>> fused_, out_;
  std::vector<std::unique_ptr<GpuMemory>> device_fused_, device_out_;
};

class AttentionCudnnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const Result<Gpu> gpu = CurrentGpu();
    if (!gpu.ok()) GTEST_SKIP() << gpu.error().Message();
    const Result<std::string> version = kernels::CudnnVersion();
    if (!version.ok()) GTEST_SKIP() << version.error().Message();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  static Options OptionsOf(int32_t head_dim, bool causal, ElementType type) {
    return {.q_heads = 4,
            .kv_heads = 2,
            .head_dim = head_dim,
            .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
            .causal = causal,
            .element_type = type};
  }

  // Runs both and compares outputs and log-sum-exp.
  void RunAndCompare(const Options& options, const Rows& rows, int64_t offset = 0) {
    Rig rig(options, offset, 3);
    RunAndCompare(options, rows, rig);
  }
  void RunAndCompare(const Options& options, const Rows& rows, Rig& rig) {
    rig.Clear();
    Result<Plan> reference = Plan::Create(rig.Settings(Place::kCpu));
    ASSERT_TRUE(reference.ok()) << reference.error().Message();
    std::vector<float> want(options.q_heads * rig.lse_stride(), 777.0f);
    ASSERT_EQ(MessageOf(reference->SetLengths(rows, nullptr, nullptr)), "");
    ASSERT_EQ(MessageOf(reference->Run(rig.Sets(Place::kCpu), want.data(), rig.lse_stride(),
                                       nullptr, nullptr)),
              "");

    Result<Plan> plan = Plan::Create(rig.Settings(Place::kCuda));
    ASSERT_TRUE(plan.ok()) << plan.error().Message();
    GpuMemory workspace(plan->workspace_bytes());
    GpuMemory lse(static_cast<int64_t>(want.size()) * 4);
    std::vector<float> got(want.size(), 777.0f);
    lse.Write(got.data());
    ASSERT_EQ(MessageOf(plan->Prepare(workspace.data(), stream_)), "");
    ASSERT_EQ(MessageOf(plan->SetLengths(rows, workspace.data(), stream_)), "");
    ASSERT_EQ(MessageOf(plan->Run(rig.Sets(Place::kCuda), static_cast<float*>(lse.data()),
                                  rig.lse_stride(), workspace.data(), stream_)),
              "");
    kernels::WaitOrEnd(stream_);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(rig.Compare(), "");
    lse.Read(got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == want[i] || std::abs(got[i] - want[i]) < 1e-3) continue;
      ADD_FAILURE() << "lse " << i << ": got " << got[i] << ", wanted " << want[i];
      break;
    }
  }

  // Sequences of one segment in one tensor, from the bounds of queries and of keys.
  void RunBounds(const Options& options, const std::vector<int32_t>& q,
                 const std::vector<int32_t>& kv) {
    Rows rows;
    for (size_t i = 1; i < q.size(); ++i) {
      rows.push_back({0, q[i - 1], q[i] - q[i - 1], kv[i - 1], kv[i] - kv[i - 1]});
    }
    SCOPED_TRACE("head_dim " + std::to_string(options.head_dim) + ", " + std::to_string(q.back()) +
                 " queries");
    Rig rig(options, 0, 11, {std::max(q.back(), kv.back()) + 1});  // the last is nobody's
    RunAndCompare(options, rows, rig);
  }

  // One segment; several in three tensors; no keys; no queries; more queries than keys.
  const Rows rows_ = {{1, 3, 130, 3, 130},
                      {},
                      {},  //
                      {0, 0, 14, 0, 14},
                      {1, 140, 100, 140, 90},
                      {2, 0, 7, 0, 7},  //
                      {0, 20, 9, 0, 0},
                      {},
                      {},  //
                      {0, 0, 0, 30, 20},
                      {},
                      {},  //
                      {2, 10, 20, 20, 5},
                      {1, 250, 40, 250, 40},
                      {}};
  cudaStream_t stream_ = nullptr;
};

TEST_F(AttentionCudnnGpu, EveryHeadSizeAgreesWithTheReference) {
  // The library compiles for each shape, some tenths of a second: not every pair.
  const std::pair<int32_t, bool> cases[] = {{64, false}, {96, true}, {128, true}, {256, false}};
  for (const auto& [head_dim, causal] : cases) {
    SCOPED_TRACE("head_dim " + std::to_string(head_dim) + (causal ? ", causal" : ""));
    RunAndCompare(OptionsOf(head_dim, causal, ElementType::kBFloat16), rows_);
  }
}

TEST_F(AttentionCudnnGpu, Float16) {
  RunAndCompare(OptionsOf(64, false, ElementType::kFloat16), rows_);
}

TEST_F(AttentionCudnnGpu, PointersThatAreNotAlignedAreCopied) {
  RunAndCompare(OptionsOf(64, true, ElementType::kBFloat16), rows_, 4);
}

TEST_F(AttentionCudnnGpu, AGraphReplaysTheSameBytes) {
  const Options options = OptionsOf(64, false, ElementType::kBFloat16);
  Rig rig(options, 0, 5);
  Result<Plan> plan = Plan::Create(rig.Settings(Place::kCuda));
  ASSERT_TRUE(plan.ok()) << plan.error().Message();
  GpuMemory workspace(plan->workspace_bytes());
  ASSERT_EQ(MessageOf(plan->Prepare(workspace.data(), stream_)), "");
  ASSERT_EQ(MessageOf(plan->SetLengths(rows_, workspace.data(), stream_)), "");
  const std::vector<TensorSet> sets = rig.Sets(Place::kCuda);
  // Captured first: the library's graphs are built meanwhile.
  rig.Clear();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(MessageOf(plan->Run(sets, nullptr, 0, workspace.data(), stream_)), "");
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  const auto replayed = rig.DeviceOutputs();
  rig.Clear();
  ASSERT_EQ(MessageOf(plan->Run(sets, nullptr, 0, workspace.data(), stream_)), "");
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(replayed == rig.DeviceOutputs());
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(AttentionCudnnGpu, ASequencesBytesDoNotDependOnItsCompany) {
  const Options options = OptionsOf(64, false, ElementType::kBFloat16);
  Rig rig(options, 0, 7);
  Result<Plan> plan = Plan::Create(rig.Settings(Place::kCuda));
  ASSERT_TRUE(plan.ok()) << plan.error().Message();
  GpuMemory workspace(plan->workspace_bytes());
  ASSERT_EQ(MessageOf(plan->Prepare(workspace.data(), stream_)), "");
  const auto outputs = [&](const Rows& rows) {
    rig.Clear();
    EXPECT_EQ(MessageOf(plan->SetLengths(rows, workspace.data(), stream_)), "");
    EXPECT_EQ(MessageOf(plan->Run(rig.Sets(Place::kCuda), nullptr, 0, workspace.data(), stream_)),
              "");
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return rig.DeviceOutputs()[1];
  };
  const Rows alone(rows_.begin(), rows_.begin() + kSegments);
  const auto first = outputs(alone);
  const auto among = outputs(rows_);
  const int64_t begin = 3 * rig.OutStride();
  const int64_t end = 133 * rig.OutStride();
  EXPECT_TRUE(std::equal(first.begin() + begin, first.begin() + end, among.begin() + begin));
}

// B018: sequences without queries among sequences of one, grouped heads.
TEST_F(AttentionCudnnGpu, NoQueriesWithGroupedHeads) {
  Options options = OptionsOf(64, true, ElementType::kBFloat16);
  options.q_heads = 9;
  options.kv_heads = 3;
  RunBounds(options, {0, 1, 1, 2}, {0, 3, 3, 8});
  options = OptionsOf(120, true, ElementType::kBFloat16);
  options.q_heads = 21;
  options.kv_heads = 7;
  RunBounds(options, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1});
}

// B019: empty sequences among long ones, then with queries and keys exchanged: queries without
// keys.
TEST_F(AttentionCudnnGpu, NoQueriesOrNoKeysAmongLongSequences) {
  const std::vector<int32_t> q = {0, 0, 1208, 2048, 2048};
  const std::vector<int32_t> kv = {0, 2538, 4280, 5120, 8192};
  for (const int32_t head_dim : {64, 96, 256}) {
    Options options = OptionsOf(head_dim, false, ElementType::kBFloat16);
    options.kv_heads = 1;
    RunBounds(options, q, kv);
    RunBounds(options, kv, q);
  }
}

// B020: nothing at all, keys alone, a long one.
TEST_F(AttentionCudnnGpu, UnbalancedLengths) {
  for (const int32_t head_dim : {64, 96, 256}) {
    RunBounds(OptionsOf(head_dim, false, ElementType::kBFloat16), {0, 0, 0, 1023}, {0, 0, 1, 2046});
  }
}

}  // namespace
}  // namespace segue::attention
