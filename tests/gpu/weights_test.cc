// Weights in a GPU's memory: from files, and out of a seed.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "device/cuda_memory.h"
#include "device/failing_memory.h"
#include "device/thread_pool.h"
#include "gpu/device_rig.h"
#include "kernels/random_weights.h"
#include "model/weights/weight_store.h"
#include "weights/weight_rig.h"

namespace segue::model {
namespace {

std::vector<uint16_t> ReadElements(const WeightView& view) {
  std::vector<uint16_t> elements(static_cast<size_t>(view.shape.NumElements()));
  EXPECT_TRUE(ReadBack(elements.data(), view.data, 2 * view.shape.NumElements(), nullptr).ok());
  return elements;
}

class WeightsGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    SEGUE_SKIP_WITHOUT_GPU();
    for (int i = 0; i < 10; ++i) {
      const DType dtype = i % 3 == 0 ? DType::kF32 : i % 3 == 1 ? DType::kBF16 : DType::kF16;
      weights_.Add(Name(i), dtype, {600, 200 + 2 * i});
    }
    weights_.Write();
  }
  static std::string Name(int i) { return "tensor." + std::to_string(i); }

  TestWeights weights_;
};

TEST_F(WeightsGpu, HoldTheFilesElements) {
  for (const bool past : {false, true}) {
    CudaMemory cuda(0);
    FailingMemory memory(cuda);
    {
      WeightStore store = WeightStore::Device(memory, {.kind = DeviceKind::kCuda});
      std::vector<WeightView> views;
      WeightView columns;
      for (int pass = 0; pass < 2; ++pass) {
        views.clear();
        for (int i = 0; i < 10; ++i) views.push_back(*store.Place(weights_.Part(Name(i))));
        columns = *store.Place(weights_.Part(Name(3), WeightSlice::Columns(50, 60)),
                               WeightGroup::kModulation);
        ASSERT_TRUE(store.Allocate().ok());
      }
      for (const WeightGroup group : {WeightGroup::kResident, WeightGroup::kModulation}) {
        const void* begin = group == WeightGroup::kResident ? views[0].data : columns.data;
        ASSERT_EQ(
            cudaMemset(const_cast<void*>(begin), 0xff, static_cast<size_t>(store.bytes(group))),
            cudaSuccess);
      }
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const Result<WeightLoadReport> report =
          store.Load({.threads = 5, .chunk_bytes = 64 << 10, .past_page_cache = past});
      ASSERT_TRUE(report.ok()) << report.error().Message();
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(ReadElements(views[static_cast<size_t>(i)]), weights_.Rounded(Name(i))) << i;
      }
      EXPECT_EQ(ReadElements(columns), weights_.Rounded(Name(3), 0, 600, 50, 60));
      EXPECT_EQ(memory.live(), 2);
    }
    EXPECT_EQ(memory.live(), 0);
  }
}

// Page-locked memory refused at every point: the load fails in order and leaves the GPU usable.
TEST_F(WeightsGpu, SurviveRefusedStaging) {
  CudaMemory cuda(0);
  PinnedMemory pinned;
  for (int64_t k = 0;; ++k) {
    FailingMemory staging(pinned, k);
    WeightStore store = WeightStore::Device(cuda, {.kind = DeviceKind::kCuda, .staging = &staging});
    WeightView view;
    for (int pass = 0; pass < 2; ++pass) {
      view = *store.Place(weights_.Part(Name(1)));
      ASSERT_TRUE(store.Allocate().ok());
    }
    const auto report = store.Load({.threads = 1, .chunk_bytes = 4096});
    EXPECT_EQ(report.ok(), !staging.refused());
    EXPECT_EQ(staging.live(), 0);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    if (report.ok()) {
      EXPECT_EQ(ReadElements(view), weights_.Rounded(Name(1)));
      EXPECT_EQ(k, kLaneSlots);
      break;
    }
    EXPECT_EQ(report.error().code, ErrorCode::kOutOfMemory);
  }
}

TEST(RandomWeightsGpu, AreTheHostsBytes) {
  SEGUE_SKIP_WITHOUT_GPU();
  struct Case {
    int64_t first, stride, rows, cols;
    int64_t offset;  // elements that y begins behind an aligned address
  };
  const Case kCases[] = {{0, 0, 1, 1, 0},         {0, 4096, 300, 4096, 0}, {0, 0, 1, 100003, 0},
                         {7, 301, 77, 33, 0},     {0, 5, 1000, 5, 0},      {0, 3, 999, 3, 3},
                         {1LL << 40, 64, 9, 8, 1}};
  ThreadPool pool(4);
  for (const Case& one : kCases) {
    kernels::RandomWeightsParams params{.key = 0x123456789abcdefu,
                                        .mean = 0.3f,
                                        .deviation = 0.017f,
                                        .first = one.first,
                                        .stride = one.stride,
                                        .rows = one.rows,
                                        .cols = one.cols};
    const int64_t count = one.rows * one.cols;
    std::vector<uint16_t> wanted(static_cast<size_t>(count));
    params.y = wanted.data();
    ASSERT_TRUE(kernels::RandomWeights(params, {.stream = Stream::Cpu(pool)}).ok());
    // 16 canaries on both sides.
    const DeviceBytes memory(2 * (count + one.offset + 32));
    params.y = static_cast<uint16_t*>(memory.data()) + 16 + one.offset;
    ASSERT_TRUE(kernels::RandomWeights(params, {.stream = Stream::Cuda(nullptr)}).ok());
    const std::vector<uint8_t> bytes = Read(memory.data(), memory.bytes());
    std::vector<uint16_t> got(bytes.size() / 2);
    std::memcpy(got.data(), bytes.data(), bytes.size());
    const auto begin = got.begin() + 16 + one.offset;
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), begin)) << count;
    for (auto at = got.begin(); at != begin; ++at) ASSERT_EQ(*at, 0xffff);
    for (auto at = begin + count; at != got.end(); ++at) ASSERT_EQ(*at, 0xffff);
  }
}

TEST(RandomWeightsGpu, ComeThroughAStore) {
  SEGUE_SKIP_WITHOUT_GPU();
  const TensorTable table = TensorTable::Random(11, "transformer");
  CudaMemory cuda(0);
  WeightStore store = WeightStore::Device(cuda, {.kind = DeviceKind::kCuda});
  WeightStore host = WeightStore::Host();
  StackedWeight stacked;
  const std::vector<StackedPart> parts = {{.name = "q.weight", .shape = {48, 96}},
                                          {.name = "k.weight", .shape = {48, 96}}};
  for (int pass = 0; pass < 2; ++pass) {
    WeightReader reader(table, store);
    stacked = reader.TakeStacked(parts);
    ASSERT_TRUE(reader.Finish().ok());
    ASSERT_TRUE(store.Allocate().ok());
  }
  ASSERT_TRUE(store.Load().ok());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto view = host.Place({*table.Locate(parts[i].name, parts[i].shape), {}});
    EXPECT_EQ(ReadElements(stacked.parts[i]), ElementsOf(*view));
  }
}

}  // namespace
}  // namespace segue::model
