// What of the GPU layer needs no GPU: ownership, memory that fails, and errors in place of a GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "device/arena.h"
#include "device/counted_memory.h"
#include "device/cuda_memory.h"
#include "device/failing_memory.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"
#include "device/gpu_handle.h"
#include "device/gpu_stream.h"

namespace segue {
namespace {

std::vector<void*> destroyed;
void Destroy(void* handle) { destroyed.push_back(handle); }

TEST(GpuHandle, DestroysOnceAndNeverNull) {
  destroyed.clear();
  int a = 0;
  int b = 0;
  {
    GpuHandle<Destroy> first(&a);
    GpuHandle<Destroy> second(std::move(first));
    EXPECT_FALSE(static_cast<bool>(first));  // NOLINT: what moving leaves is what is tested
    EXPECT_EQ(second.get(), &a);
    GpuHandle<Destroy> third(&b);
    third = std::move(second);
    EXPECT_EQ(destroyed, std::vector<void*>({&b}));
    GpuHandle<Destroy>& same = third;
    third = std::move(same);
    EXPECT_EQ(third.get(), &a);
    const GpuHandle<Destroy> empty;
    EXPECT_EQ(empty.get(), nullptr);
  }
  EXPECT_EQ(destroyed, std::vector<void*>({&b, &a}));
}

TEST(FailingMemory, RefusesOneAndCountsTheRest) {
  FailingMemory memory(HostMemory(), 1);
  Result<Arena> first = Arena::Create(memory, 64);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(memory.refused());
  const Result<Arena> second = Arena::Create(memory, 64);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(memory.refused());
  {
    const Result<Arena> third = Arena::Create(memory, 64);
    EXPECT_TRUE(third.ok());
    EXPECT_EQ(memory.live(), 2);
  }
  EXPECT_EQ(memory.live(), 1);
  EXPECT_EQ(memory.asked(), 3);
}

TEST(FailingMemory, RefusesForGood) {
  FailingMemory memory(HostMemory(), 0, true);
  EXPECT_EQ(memory.Allocate(8), nullptr);
  EXPECT_EQ(memory.Allocate(8), nullptr);
  EXPECT_EQ(memory.live(), 0);
}

// Memory whose allocations can be extended, as the GPU's workspace can.
class Extensible : public DeviceMemory {
 public:
  void* Allocate(int64_t bytes) override { return HostMemory().Allocate(bytes + 100); }
  bool Extend(void*, int64_t bytes) override { return bytes <= 100; }
  void Free(void* pointer) override { HostMemory().Free(pointer); }
};

TEST(CountedMemory, KnowsWhatLivesAndTheMostThatDid) {
  FailingMemory failing(HostMemory(), 2);
  Extensible extensible;
  MemoryCount count;
  CountedMemory memory(failing, count);
  CountedMemory other(extensible, count);
  void* first = memory.Allocate(100);
  void* second = memory.Allocate(50);
  EXPECT_EQ(memory.Allocate(1000), nullptr);  // a refused allocation counts for nothing
  EXPECT_EQ(count.live_bytes(), 150);
  memory.Free(first);
  memory.Free(nullptr);
  EXPECT_EQ(count.live_bytes(), 50);
  void* third = other.Allocate(10);
  EXPECT_EQ(count.live_bytes(), 60);
  EXPECT_TRUE(other.Extend(third, 90));
  EXPECT_FALSE(other.Extend(third, 900));
  EXPECT_EQ(count.live_bytes(), 140);
  memory.Free(second);
  other.Free(third);
  EXPECT_EQ(count.live_bytes(), 0);
  EXPECT_EQ(count.peak_bytes(), 150);
  EXPECT_EQ(failing.live(), 0);
}

TEST(FailingMemory, RefusesToExtendToo) {
  Extensible extensible;
  FailingMemory memory(extensible, 1);
  void* pointer = memory.Allocate(10);
  EXPECT_FALSE(memory.Extend(pointer, 20));
  EXPECT_TRUE(memory.refused());
  EXPECT_TRUE(memory.Extend(pointer, 20));
  memory.Free(pointer);
  EXPECT_EQ(memory.asked(), 3);
  EXPECT_EQ(memory.live(), 0);
}

// On a machine without a GPU, with CUDA in the build or without.
TEST(NoGpu, EveryCallIsAnError) {
  if (CudaDevices().ok()) GTEST_SKIP() << "there is a GPU";
  const Result<GpuStream> stream = GpuStream::Create();
  ASSERT_FALSE(stream.ok());
  EXPECT_EQ(stream.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(stream.error().got, "");
  EXPECT_FALSE(GpuEvent::Create().ok());
  EXPECT_FALSE(SetCurrentDevice(0).ok());
  EXPECT_FALSE(FreeAndTotal().ok());
  int value = 1;
  EXPECT_FALSE(Upload(&value, &value, sizeof value, nullptr).ok());
  EXPECT_FALSE(Download(&value, &value, sizeof value, nullptr).ok());
  EXPECT_EQ(CudaMemory(0).Allocate(64), nullptr);
  EXPECT_EQ(PinnedMemory().Allocate(64), nullptr);
}

}  // namespace
}  // namespace segue
