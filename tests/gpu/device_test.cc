// Memory, streams, events and copies of a GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"
#include "device/gpu_stream.h"
#include "device/growing_memory.h"
#include "gpu/device_rig.h"

namespace segue {
namespace {

TEST(CudaMemory, HoldsBytesAndGivesThemBack) {
  SEGUE_SKIP_WITHOUT_GPU();
  CudaMemory memory(0);
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Result<GpuMemoryInfo> before = FreeAndTotal();
  ASSERT_TRUE(before.ok());
  EXPECT_GE(before->total_bytes, before->free_bytes);
  void* pointer = memory.Allocate(kBytes);
  ASSERT_NE(pointer, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 256, 0u);
  EXPECT_LE(FreeAndTotal()->free_bytes, before->free_bytes - kBytes);
  const std::vector<uint8_t> bytes = RandomBytes(kBytes / 1024, 3);
  EXPECT_TRUE(Upload(pointer, bytes.data(), Size(bytes), nullptr).ok());
  EXPECT_EQ(Read(pointer, Size(bytes)), bytes);
  memory.Free(pointer);
  EXPECT_EQ(FreeAndTotal()->free_bytes, before->free_bytes);

  void* nothing = memory.Allocate(0);
  EXPECT_NE(nothing, nullptr);
  memory.Free(nothing);
  memory.Free(nullptr);
}

TEST(CudaMemory, FailsWithoutATrace) {
  SEGUE_SKIP_WITHOUT_GPU();
  CudaMemory memory(0);
  EXPECT_EQ(memory.Allocate(int64_t{1} << 50), nullptr);
  EXPECT_EQ(memory.Allocate(-1), nullptr);
  EXPECT_EQ(CudaMemory(1000).Allocate(64), nullptr);
  EXPECT_EQ(PinnedMemory().Allocate(int64_t{1} << 50), nullptr);
  EXPECT_FALSE(SetCurrentDevice(1000).ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  void* pointer = memory.Allocate(64);
  EXPECT_NE(pointer, nullptr);
  memory.Free(pointer);
}

TEST(GrowingMemory, GrowsUnderARecordedGraph) {
  SEGUE_SKIP_WITHOUT_GPU();
  const Result<GpuMemoryInfo> before = FreeAndTotal();
  const Result<GpuStream> stream = GpuStream::Create();
  ASSERT_TRUE(before.ok() && stream.ok());
  {
    GrowingMemory memory(0);
    constexpr int64_t kBytes = int64_t{64} << 20;
    auto* first = static_cast<uint8_t*>(memory.Allocate(kBytes));
    ASSERT_NE(first, nullptr);
    const Result<GpuGraph> clears =
        GpuGraph::Capture(*stream, [&] { return SetToZero(first, kBytes / 2, stream->get()); });
    ASSERT_TRUE(clears.ok());
    const std::vector<uint8_t> bytes = RandomBytes(kBytes, 5);
    ASSERT_TRUE(Upload(first, bytes.data(), Size(bytes), nullptr).ok());

    ASSERT_TRUE(memory.Extend(first, 16 * kBytes));
    EXPECT_LE(FreeAndTotal()->free_bytes, before->free_bytes - 16 * kBytes);
    EXPECT_EQ(Read(first, Size(bytes)), bytes);
    uint8_t* beyond = first + 16 * kBytes - Size(bytes);
    ASSERT_TRUE(Upload(beyond, bytes.data(), Size(bytes), nullptr).ok());
    ASSERT_TRUE(clears->Launch(*stream).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    std::vector<uint8_t> cleared = bytes;
    std::fill_n(cleared.begin(), kBytes / 2, uint8_t{0});
    EXPECT_EQ(Read(first, Size(bytes)), cleared);
    EXPECT_EQ(Read(beyond, Size(bytes)), bytes);

    // More than there is: as it was.
    EXPECT_FALSE(memory.Extend(first, before->total_bytes));
    EXPECT_EQ(Read(beyond, Size(bytes)), bytes);
    EXPECT_FALSE(memory.Extend(beyond, kBytes));
    EXPECT_EQ(memory.Allocate(int64_t{1} << 50), nullptr);
    EXPECT_EQ(memory.Allocate(-1), nullptr);
    void* second = memory.Allocate(kBytes);  // is given back with the rest
    EXPECT_NE(second, nullptr);
    memory.Free(first);
    memory.Free(nullptr);
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_GE(FreeAndTotal()->free_bytes, before->free_bytes - (int64_t{4} << 20));
}

TEST(GpuEvent, IsPendingUntilItsStreamGetsThere) {
  SEGUE_SKIP_WITHOUT_GPU();
  const Result<GpuStream> stream = GpuStream::Create();
  const Result<GpuEvent> event = GpuEvent::Create();
  ASSERT_TRUE(stream.ok() && event.ok());
  EXPECT_TRUE(*event->Query());  // never recorded
  {
    Gate gate(*stream);
    ASSERT_TRUE(event->Record(stream->get()).ok());
    const Result<bool> pending = event->Query();
    ASSERT_TRUE(pending.ok());
    EXPECT_FALSE(*pending);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  EXPECT_TRUE(event->Synchronize().ok());
  EXPECT_TRUE(*event->Query());
}

TEST(GpuEvent, TimesAndRefusesToTime) {
  SEGUE_SKIP_WITHOUT_GPU();
  const Result<GpuStream> stream = GpuStream::Create();
  const Result<GpuEvent> begin = GpuEvent::Create(GpuEvent::Timing::kYes);
  const Result<GpuEvent> end = GpuEvent::Create(GpuEvent::Timing::kYes);
  const Result<GpuEvent> untimed = GpuEvent::Create();
  ASSERT_TRUE(stream.ok() && begin.ok() && end.ok() && untimed.ok());
  const DeviceBytes memory(int64_t{256} << 20);
  ASSERT_TRUE(begin->Record(stream->get()).ok());
  ASSERT_TRUE(SetToZero(memory.data(), memory.bytes(), stream->get()).ok());
  ASSERT_TRUE(end->Record(stream->get()).ok());
  ASSERT_TRUE(untimed->Record(stream->get()).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  const Result<float> ms = ElapsedMs(*begin, *end);
  ASSERT_TRUE(ms.ok());
  EXPECT_GT(*ms, 0.01f);  // 256 MiB cannot be set any faster
  EXPECT_LT(*ms, 10000.0f);
  EXPECT_FALSE(ElapsedMs(*begin, *untimed).ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(GpuStream, WaitsForAnotherWithoutTheHost) {
  SEGUE_SKIP_WITHOUT_GPU();
  const Result<GpuStream> first = GpuStream::Create();
  const Result<GpuStream> second = GpuStream::Create();
  const Result<GpuEvent> event = GpuEvent::Create();
  ASSERT_TRUE(first.ok() && second.ok() && event.ok());
  const DeviceBytes memory(4096);
  const DeviceBytes copy(4096);
  PinnedMemory pinned;
  auto* staged = static_cast<uint8_t*>(pinned.Allocate(4096));
  ASSERT_NE(staged, nullptr);
  const std::vector<uint8_t> bytes = RandomBytes(4096, 5);
  std::copy(bytes.begin(), bytes.end(), staged);
  {
    Gate gate(*first);
    ASSERT_TRUE(Upload(memory.data(), staged, 4096, first->get()).ok());
    ASSERT_TRUE(event->Record(first->get()).ok());
    ASSERT_TRUE(second->Wait(*event).ok());
    ASSERT_TRUE(
        CopyPieces({copy.data(), 4096}, {memory.data(), 4096}, 4096, 1, second->get()).ok());
    const Result<GpuEvent> behind = GpuEvent::Create();
    ASSERT_TRUE(behind.ok() && behind->Record(second->get()).ok());
    EXPECT_FALSE(*behind->Query());
  }
  ASSERT_TRUE(second->Synchronize().ok());
  EXPECT_EQ(Read(copy.data(), 4096), bytes);
  std::fill(staged, staged + 4096, uint8_t{0});
  ASSERT_TRUE(Download(staged, copy.data(), 4096, second->get()).ok());
  ASSERT_TRUE(second->Synchronize().ok());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), staged));
  pinned.Free(staged);
}

TEST(CudaDevices, LeavesTheCurrentDeviceAlone) {
  SEGUE_SKIP_WITHOUT_GPU();
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok());
  ASSERT_FALSE(devices->empty());
  EXPECT_TRUE(SetCurrentDevice(devices->back().index).ok());
  CudaMemory memory(0);
  memory.Free(memory.Allocate(64));
  EXPECT_TRUE(CudaDevices().ok());
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, devices->back().index);
  EXPECT_TRUE(SetCurrentDevice(0).ok());
}

// Names are read on every start, on hosts whose other GPUs are somebody else's.
TEST(CudaDevices, MakesNoContext) {
  SEGUE_SKIP_WITHOUT_GPU();
  using StateOf = int (*)(int device, unsigned* flags, int* active);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry, 12000,
                                             cudaEnableDefault, &found),
            cudaSuccess);
  ASSERT_EQ(found, cudaDriverEntryPointSuccess);
  const auto active = [&](int device) {
    unsigned flags = 0;
    int is = -1;
    EXPECT_EQ(reinterpret_cast<StateOf>(entry)(device, &flags, &is), 0);
    return is;
  };
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  std::vector<int> before;
  before.reserve(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) before.push_back(active(device));
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.error().Message();
  ASSERT_EQ(devices->size(), before.size());
  for (int device = 0; device < count; ++device) {
    EXPECT_EQ(active(device), before[static_cast<size_t>(device)]) << device;
    EXPECT_GT((*devices)[static_cast<size_t>(device)].total_bytes, 0);
  }
}

}  // namespace
}  // namespace segue
