#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/gpu_rig.h"
#include "kernels/attention_sm90.h"

namespace segue::kernels {
namespace {

// A graph captured with one set of lengths, replayed with others, gives an eager call's bytes.
TEST(AttentionSm90Graph, ReplaysWithOtherLengths) {
  SEGUE_SKIP_WITHOUT_GPU();

  const std::vector<std::vector<SequenceLengths>> sets = {
      {{{64, 64}, {64, 64}}, {{64, 64}, {64, 64}}},
      {{{63, 63}, {1, 1}}, {{65, 65}, {127, 127}}},
      {{{14, 14}, {400, 400}}},
      {{{0, 0}, {9, 300}}, {{5, 5}, {129, 0}}, {{100, 10}, {1, 177}}},
      {},
  };
  for (const bool causal : {false, true}) {
    const BatchOptions options{.causal = causal, .sequences = 4, .rows = 900};
    Batch captured(sets[0], options, 1);
    captured.Upload();
    cudaStream_t side = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_TRUE(captured.Refresh(Stream::Cuda(side)).ok());
    ASSERT_TRUE(captured.Run(Stream::Cuda(side)).ok());
    ASSERT_EQ(cudaStreamEndCapture(side, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);

    for (size_t i = 0; i < sets.size(); ++i) {
      const auto seed = static_cast<uint32_t>(50 + i);
      captured.SetLengths(sets[i], seed);
      captured.Upload();
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(executable, side), cudaSuccess);
      EXPECT_EQ(captured.Check(), "") << "set " << i;

      Batch eager(sets[0], options, 1);
      eager.SetLengths(sets[i], seed);
      eager.Upload();
      ASSERT_TRUE(eager.Refresh(Stream::Cuda(nullptr)).ok());
      ASSERT_TRUE(eager.Run(Stream::Cuda(nullptr)).ok());
      EXPECT_EQ(eager.Check(), "") << "set " << i;
      for (int32_t s = 0; s < eager.sequences(); ++s) {
        EXPECT_EQ(captured.OutputOf(s), eager.OutputOf(s)) << "set " << i;
        EXPECT_EQ(captured.LseOf(s), eager.LseOf(s)) << "set " << i;
      }
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(side);
  }
}

}  // namespace
}  // namespace segue::kernels
