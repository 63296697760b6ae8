// Graphs: what is recorded, and what is left of a capture that fails.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"
#include "gpu/device_rig.h"

namespace segue {
namespace {

constexpr int64_t kBytes = 4096;

class GpuGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    SEGUE_SKIP_WITHOUT_GPU();
    Result<GpuStream> stream = GpuStream::Create();
    ASSERT_TRUE(stream.ok());
    stream_ = std::make_unique<GpuStream>(std::move(*stream));
    from_ = std::make_unique<DeviceBytes>(kBytes);
    to_ = std::make_unique<DeviceBytes>(kBytes);
  }

  Status CopyAndClear(void* stream) const {
    SEGUE_RETURN_IF_ERROR(
        CopyPieces({to_->data(), kBytes}, {from_->data(), kBytes}, kBytes, 1, stream));
    return SetToZero(from_->data(), kBytes, stream);
  }

  // The stream runs work and records graphs, and no failure is remembered.
  void ExpectUsable() const {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    const Result<bool> capturing = IsCapturing(stream_->get());
    ASSERT_TRUE(capturing.ok());
    EXPECT_FALSE(*capturing);
    const std::vector<uint8_t> bytes = RandomBytes(kBytes, 9);
    ASSERT_TRUE(Upload(from_->data(), bytes.data(), kBytes, stream_->get()).ok());
    const Result<GpuGraph> graph =
        GpuGraph::Capture(*stream_, [&] { return CopyAndClear(stream_->get()); });
    ASSERT_TRUE(graph.ok()) << graph.error().Message();
    ASSERT_TRUE(graph->Launch(*stream_).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_EQ(Read(to_->data(), kBytes), bytes);
  }

  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<DeviceBytes> from_;
  std::unique_ptr<DeviceBytes> to_;
};

TEST_F(GpuGraphTest, ReplaysOverWhatMemoryHoldsThen) {
  const std::vector<uint8_t> before = Read(to_->data(), kBytes);
  Result<GpuGraph> graph =
      GpuGraph::Capture(*stream_, [&] { return CopyAndClear(stream_->get()); });
  ASSERT_TRUE(graph.ok()) << graph.error().Message();
  EXPECT_EQ(graph->nodes().kernels, 0);
  EXPECT_EQ(graph->nodes().copies, 1);
  EXPECT_EQ(graph->nodes().memsets, 1);
  EXPECT_EQ(graph->nodes().others, 0);
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(Read(to_->data(), kBytes), before);  // nothing has run

  const GpuGraph moved = std::move(*graph);
  ASSERT_TRUE(moved.Upload(*stream_).ok());
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::vector<uint8_t> bytes = RandomBytes(kBytes, seed);
    ASSERT_TRUE(Upload(from_->data(), bytes.data(), kBytes, stream_->get()).ok());
    ASSERT_TRUE(moved.Launch(*stream_).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_EQ(Read(to_->data(), kBytes), bytes);
    EXPECT_EQ(Read(from_->data(), kBytes), std::vector<uint8_t>(kBytes, 0));
  }
}

TEST_F(GpuGraphTest, JoinsStreams) {
  const Result<GpuStream> side = GpuStream::Create();
  const Result<GpuEvent> fork = GpuEvent::Create();
  const Result<GpuEvent> join = GpuEvent::Create();
  ASSERT_TRUE(side.ok() && fork.ok() && join.ok());
  const Result<GpuGraph> graph = GpuGraph::Capture(*stream_, [&]() -> Status {
    SEGUE_RETURN_IF_ERROR(fork->Record(stream_->get()));
    SEGUE_RETURN_IF_ERROR(side->Wait(*fork));
    SEGUE_RETURN_IF_ERROR(CopyAndClear(side->get()));
    SEGUE_RETURN_IF_ERROR(join->Record(side->get()));
    return stream_->Wait(*join);
  });
  ASSERT_TRUE(graph.ok()) << graph.error().Message();
  EXPECT_EQ(graph->nodes().copies, 1);
  ExpectUsable();
}

TEST_F(GpuGraphTest, FailsCleanly) {
  const Result<GpuStream> side = GpuStream::Create();
  const Result<GpuEvent> fork = GpuEvent::Create();
  ASSERT_TRUE(side.ok() && fork.ok());
  struct Case {
    const char* name;
    std::function<Status()> enqueue;
    const char* got;  // part of the reason
  };
  const Case kCases[] = {
      {"an error of the caller's",
       [&]() -> Status {
         SEGUE_RETURN_IF_ERROR(CopyAndClear(stream_->get()));
         return Error{.code = ErrorCode::kUnsupported, .operation = "launch", .got = "a reason"};
       },
       "a reason"},
      {"an allocation",
       [&]() -> Status {
         void* pointer = nullptr;
         (void)cudaMalloc(&pointer, 64);
         return CopyAndClear(stream_->get());
       },
       "captur"},
      {"a wait of the host",
       [&]() -> Status {
         SEGUE_RETURN_IF_ERROR(CopyAndClear(stream_->get()));
         return stream_->Synchronize();
       },
       "captur"},
      {"a stream that is not joined",
       [&]() -> Status {
         SEGUE_RETURN_IF_ERROR(fork->Record(stream_->get()));
         SEGUE_RETURN_IF_ERROR(side->Wait(*fork));
         return CopyAndClear(side->get());
       },
       "join"},
      {"nothing", [] { return Status(); }, "nothing"},
      {"a launch that the driver refuses",
       [&] { return SetToZero(nullptr, kBytes, stream_->get()); }, ""},
  };
  for (const Case& failing : kCases) {
    SCOPED_TRACE(failing.name);
    const Result<GpuGraph> graph = GpuGraph::Capture(*stream_, failing.enqueue);
    ASSERT_FALSE(graph.ok());
    EXPECT_NE(graph.error().Message().find(failing.got), std::string::npos)
        << graph.error().Message();
    ExpectUsable();
  }
  // What was a part of the failed capture works too.
  EXPECT_TRUE(CopyAndClear(side->get()).ok());
  EXPECT_TRUE(side->Synchronize().ok());
}

TEST_F(GpuGraphTest, LetsARelaxedCaptureAllocate) {
  void* pointer = nullptr;
  const auto enqueue = [&]() -> Status {
    EXPECT_EQ(cudaMalloc(&pointer, 64), cudaSuccess);
    return CopyAndClear(stream_->get());
  };
  const Result<GpuGraph> graph = GpuGraph::Capture(*stream_, enqueue, GpuGraph::Mode::kRelaxed);
  ASSERT_TRUE(graph.ok()) << graph.error().Message();
  cudaFree(pointer);
  ExpectUsable();
}

// Other threads allocate, copy and wait for their own streams while one records.
TEST_F(GpuGraphTest, LeavesOtherThreadsAlone) {
  const std::vector<uint8_t> bytes = RandomBytes(kBytes, 11);
  std::vector<uint8_t> back(bytes.size());
  const auto elsewhere = [&] {
    const Result<GpuStream> stream = GpuStream::Create();
    CudaMemory memory(0);
    void* pointer = memory.Allocate(kBytes);
    EXPECT_TRUE(Upload(pointer, bytes.data(), kBytes, stream->get()).ok());
    EXPECT_TRUE(ReadBack(back.data(), pointer, kBytes, stream->get()).ok());
    memory.Free(pointer);
  };
  const auto enqueue = [&]() -> Status {
    SEGUE_RETURN_IF_ERROR(CopyAndClear(stream_->get()));
    std::thread other(elsewhere);
    other.join();
    return {};
  };
  const Result<GpuGraph> graph = GpuGraph::Capture(*stream_, enqueue);
  ASSERT_TRUE(graph.ok()) << graph.error().Message();
  EXPECT_EQ(back, bytes);
  ExpectUsable();
}

}  // namespace
}  // namespace segue
