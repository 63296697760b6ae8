// What tests of public reports about attention share: a case is run, waited for with a limit, and
// judged against float64.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/gpu_rig.h"

namespace segue::kernels {

// Waits for the stream. A kernel that hangs takes everything after it along, so the program then
// ends at once and names the test.
inline void WaitOrEnd(cudaStream_t stream) {
  constexpr std::chrono::seconds kLimit(5);
  const auto begin = std::chrono::steady_clock::now();
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    if (std::chrono::steady_clock::now() - begin < kLimit) {
      std::this_thread::yield();
      continue;
    }
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "[  FAILED  ] %s.%s: the GPU is not done after 5 s\n",
                 test->test_suite_name(), test->name());
    std::_Exit(1);
  }
}

class AttentionCase : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  // Each returns what went wrong; empty: nothing.
  static std::string Launch(Batch& batch, cudaStream_t stream = nullptr) {
    batch.Upload();
    if (cudaDeviceSynchronize() != cudaSuccess) return "the upload failed";
    for (const Status& status :
         {batch.Refresh(Stream::Cuda(stream)), batch.Run(Stream::Cuda(stream))}) {
      if (!status.ok()) return status.error().Message();
    }
    WaitOrEnd(stream);
    return "";
  }
  static std::string LaunchAndCheck(Batch& batch, cudaStream_t stream = nullptr) {
    const std::string wrong = Launch(batch, stream);
    return wrong.empty() ? batch.Check() : wrong;
  }
  static void RunAndCheck(const std::vector<SequenceLengths>& lengths,
                          const BatchOptions& options) {
    Batch batch(lengths, options, 41);
    EXPECT_EQ(LaunchAndCheck(batch), "") << (options.causal ? "causal" : "not causal");
  }

  // Every sequence's outputs and log-sum-exp, bit by bit, after Check or Fetch.
  static std::vector<uint32_t> BitsOf(const Batch& batch) {
    std::vector<uint32_t> bits;
    for (int32_t i = 0; i < batch.sequences(); ++i) {
      for (const uint16_t value : batch.OutputOf(i)) bits.push_back(value);
      for (const float value : batch.LseOf(i)) bits.push_back(std::bit_cast<uint32_t>(value));
    }
    return bits;
  }
};

// What `enqueue` puts on the stream, captured.
class Captured {
 public:
  Captured(cudaStream_t stream, const std::function<void()>& enqueue) : stream_(stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    enqueue();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  }
  ~Captured() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  size_t nodes() const {
    size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, &count), cudaSuccess);
    return count;
  }
  void Replay() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess);
    WaitOrEnd(stream_);
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace segue::kernels
