// Chains of row kernels, which may start before the one in front has ended, eager and captured.
#include "gpu/rows_rig.h"
#include "kernels/activation.h"
#include "kernels/modulated_norm.h"
#include "kernels/row_index.h"

namespace segue::kernels {
namespace {

constexpr int64_t kRows[] = {700, 20};
constexpr int64_t kCols = 1536;
constexpr int kLinks = 20;

// h += gate * y; y = gelu(norm(h)), again and again: every launch reads what the one before wrote.
// The rows' requests come from slots and entries on the device.
class Chain {
 public:
  Chain()
      : table_(RandomValues(4, 3 * kCols, 1, 0.5f), 0),
        slots_{DeviceArray<int32_t>(RandomIndex(kRows[0], 3, 2)),
               DeviceArray<int32_t>(RandomIndex(kRows[1], 3, 3))},
        entry_(std::vector<int32_t>{0, 1, 2}),
        index_{DeviceArray<int32_t>(std::vector<int32_t>(kRows[0], -1)),
               DeviceArray<int32_t>(std::vector<int32_t>(kRows[1], -1))},
        h_{DeviceMatrix(Start(0), 8), DeviceMatrix(Start(1), 0)},
        y_{DeviceMatrix(Start(2), 0), DeviceMatrix(Start(3), 8)} {}

  void Reset() {
    for (int i = 0; i < 2; ++i) {
      h_[i].Set(Start(i));
      y_[i].Set(Start(2 + i));
    }
  }
  void SetEntries(const std::vector<int32_t>& entries) { entry_.Set(entries); }

  Status Enqueue(const Context& context) {
    std::vector<ModulatedNormStream> norms;
    std::vector<ActivationParams> activations;
    for (int i = 0; i < 2; ++i) {
      SEGUE_RETURN_IF_ERROR(RowIndex({.slot = slots_[i].data(),
                                      .entry = entry_.data(),
                                      .slots = 3,
                                      .index = index_[i].data(),
                                      .count = kRows[i]},
                                     context));
      const auto slice = [&](int64_t part) {
        RowTable table = table_.Table(index_[i].data());
        table.data = static_cast<const uint16_t*>(table.data) + part * kCols;
        return table;
      };
      norms.push_back({.branch = y_[i].View(),
                       .gate = slice(0),
                       .h = h_[i].View(),
                       .scale = slice(1),
                       .shift = slice(2),
                       .y = y_[i].View()});
      activations.push_back(
          {.x = y_[i].View(), .y = y_[i].View(), .activation = Activation::kGeluTanh});
    }
    for (int link = 0; link < kLinks; ++link) {
      SEGUE_RETURN_IF_ERROR(
          ModulatedNorm({.streams = norms, .rounding = Rounding::kBF16}, context));
      SEGUE_RETURN_IF_ERROR(ActivateStreams({.streams = activations}, context));
    }
    return {};
  }

  std::vector<std::vector<uint16_t>> Bits() const {
    return {h_[0].Bits(), h_[1].Bits(), y_[0].Bits(), y_[1].Bits()};
  }

 private:
  static Values Start(uint32_t which) { return RandomValues(kRows[which % 2], kCols, 10 + which); }

  DeviceMatrix table_;
  DeviceArray<int32_t> slots_[2];
  DeviceArray<int32_t> entry_;
  DeviceArray<int32_t> index_[2];
  DeviceMatrix h_[2];
  DeviceMatrix y_[2];
};

TEST(RowsGraphGpu, ChainsEagerAndCapturedAreThePlainOnes) {
  SEGUE_SKIP_WITHOUT_GPU();
  Chain fast;
  Chain plain;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(Text(fast.Enqueue(OnGpu())), "");  // loads the code
  ASSERT_EQ(Finish(), "");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Status enqueued = fast.Enqueue({.stream = Stream::Cuda(stream)});
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(Text(enqueued), "");
  size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, size_t{2 + 2 * kLinks});
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);

  for (const std::vector<int32_t>& entries :
       {std::vector<int32_t>{0, 1, 2}, {3, 3, 1}, {2, 0, 3}}) {
    plain.Reset();
    plain.SetEntries(entries);
    ASSERT_EQ(Text(plain.Enqueue(OnGpu(true))), "");
    ASSERT_EQ(Finish(), "");
    const std::vector<std::vector<uint16_t>> want = plain.Bits();
    fast.SetEntries(entries);
    for (const bool captured : {false, true}) {
      fast.Reset();
      if (captured) {
        ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      } else {
        ASSERT_EQ(Text(fast.Enqueue({.stream = Stream::Cuda(stream)})), "");
      }
      ASSERT_EQ(Finish(), "");
      EXPECT_TRUE(fast.Bits() == want) << (captured ? "captured" : "eager");
    }
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace segue::kernels
