#include "device/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace segue {
namespace {

void LayOut(Arena& arena) {
  arena.TakeMatrix("a", 3, 5);
  arena.Take<int32_t>("b", 100);
}

TEST(Arena, CountingAndRealLayoutsAgree) {
  Arena plan;
  LayOut(plan);
  EXPECT_EQ(plan.peak_bytes(), 256 + 512);

  Result<Arena> arena = Arena::Create(HostMemory(), plan.peak_bytes());
  ASSERT_TRUE(arena.ok());
  LayOut(*arena);
  EXPECT_TRUE(arena->Check().ok());
  EXPECT_EQ(arena->used_bytes(), plan.used_bytes());
}

TEST(Arena, BlocksAreAlignedAndDisjoint) {
  Result<Arena> arena = Arena::Create(HostMemory(), 1024);
  ASSERT_TRUE(arena.ok());
  const auto* a = arena->Take<char>("a", 1);
  const auto* b = arena->Take<char>("b", 65);
  const auto* c = arena->Take<char>("c", 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % Arena::kAlignment, 0u);
  EXPECT_EQ(b - a, 256);
  EXPECT_EQ(c - b, 256);
}

TEST(Arena, OverflowNamesTheBlock) {
  Result<Arena> arena = Arena::Create(HostMemory(), 512);
  ASSERT_TRUE(arena.ok());
  EXPECT_NE(arena->Take<float>("small", 16), nullptr);
  EXPECT_EQ(arena->Take<float>("large", 100), nullptr);
  const Status status = arena->Check();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().argument, "block 'large'");
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
}

// Memory that grows in place up to a limit, as a GPU's can.
class RoomToGrow : public DeviceMemory {
 public:
  void* Allocate(int64_t bytes) override { return bytes <= kLimit ? room_ : nullptr; }
  bool Extend(void* pointer, int64_t bytes) override { return pointer == room_ && bytes <= kLimit; }
  void Free(void*) override {}

 private:
  static constexpr int64_t kLimit = 1024;
  alignas(Arena::kAlignment) char room_[kLimit];
};

TEST(Arena, ExtendedBlocksStayWhereTheyAre) {
  RoomToGrow memory;
  Result<Arena> arena = Arena::Create(memory, 256);
  ASSERT_TRUE(arena.ok());
  const auto* first = arena->Take<char>("first", 256);
  EXPECT_TRUE(arena->Extend(100));  // less than there is
  EXPECT_EQ(arena->capacity_bytes(), 256);
  ASSERT_TRUE(arena->Extend(512));
  EXPECT_EQ(arena->capacity_bytes(), 512);
  EXPECT_EQ(arena->Take<char>("second", 256), first + 256);
  EXPECT_TRUE(arena->Check().ok());
  EXPECT_FALSE(arena->Extend(4096));
  EXPECT_EQ(arena->capacity_bytes(), 512);
}

TEST(Arena, MemoryThatCannotGrowSaysSo) {
  Result<Arena> arena = Arena::Create(HostMemory(), 256);
  ASSERT_TRUE(arena.ok());
  EXPECT_FALSE(arena->Extend(512));
  EXPECT_EQ(arena->capacity_bytes(), 256);
}

TEST(Arena, ReleaseReusesMemoryAndKeepsThePeak) {
  Arena plan;
  plan.Take<float>("kept", 16);
  const int64_t mark = plan.Mark();
  plan.Take<float>("temporary", 1000);
  const int64_t peak = plan.peak_bytes();
  plan.Release(mark);
  EXPECT_EQ(plan.used_bytes(), 256);
  EXPECT_EQ(plan.peak_bytes(), peak);
}

// An allocator that refuses, as an exhausted machine would.
class NoMemory : public DeviceMemory {
 public:
  void* Allocate(int64_t) override { return nullptr; }
  void Free(void*) override {}
};

TEST(Arena, ARefusedAllocationIsAnErrorWithNumbers) {
  NoMemory memory;
  const Result<Arena> arena = Arena::Create(memory, 1 << 20);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(arena.error().wanted, "1048576 bytes");
}

TEST(Arena, MovingTransfersOwnership) {
  Result<Arena> first = Arena::Create(HostMemory(), 256);
  ASSERT_TRUE(first.ok());
  Arena second = std::move(*first);
  EXPECT_NE(second.Take<float>("x", 4), nullptr);
  second = Arena();
  EXPECT_TRUE(second.counting());
}

TEST(Device, HostInfoReadsTheMachine) {
  const DeviceInfo host = HostInfo();
  EXPECT_GT(host.total_bytes, 0);
  EXPECT_GT(host.free_bytes, 0);
  EXPECT_LE(host.free_bytes, host.total_bytes);
}

TEST(Device, CudaAnswersWithDevicesOrAReason) {
  const Result<std::vector<DeviceInfo>> devices = CudaDevices();
  if (!devices.ok()) {
    EXPECT_FALSE(devices.error().got.empty());
    EXPECT_FALSE(devices.error().wanted.empty());
  }
}

}  // namespace
}  // namespace segue
