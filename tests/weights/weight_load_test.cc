// Loading: threads, progress, and files that are not what their headers said.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "device/counted_memory.h"
#include "model/weights/weight_store.h"
#include "weights/weight_rig.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;

class WeightLoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 12; ++i) {
      weights_.Add(Name(i), i % 3 == 0 ? DType::kF32 : DType::kBF16, {38, 61 + i});
    }
    weights_.Write();
  }

  static std::string Name(int i) { return "tensor." + std::to_string(i); }

  // Everything placed and waiting for Load.
  WeightStore Placed() {
    WeightStore store = WeightStore::Device(HostMemory(), {.kind = DeviceKind::kCpu});
    for (int pass = 0; pass < 2; ++pass) {
      views_.clear();
      for (int i = 0; i < 12; ++i) views_.push_back(*store.Place(weights_.Part(Name(i))));
      EXPECT_TRUE(store.Allocate().ok());
    }
    return store;
  }

  void ExpectAll() const {
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(ElementsOf(views_[static_cast<size_t>(i)]), weights_.Rounded(Name(i))) << i;
    }
  }

  TestWeights weights_;
  std::vector<WeightView> views_;
};

TEST_F(WeightLoadTest, AnyThreadsAndReadsGiveTheSame) {
  for (const int threads : {1, 3, 16}) {
    for (const int64_t chunk : {0, 1, 8192, 1 << 20}) {
      for (const bool past : {false, true}) {
        WeightStore store = Placed();
        const Result<WeightLoadReport> report =
            store.Load({.threads = threads, .chunk_bytes = chunk, .past_page_cache = past});
        ASSERT_TRUE(report.ok()) << report.error().Message();
        ExpectAll();
        EXPECT_GE(report->file_bytes, weights_.table().total_bytes());
        EXPECT_GT(report->placed_bytes, 0);
        EXPECT_TRUE(past || report->direct_bytes == 0);
      }
    }
  }
}

// Nothing of the file is in the page cache, where the system heeds the advice.
TEST_F(WeightLoadTest, ReadsWhatIsNotCached) {
  const int file = ::open(weights_.path().c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  WeightStore store = Placed();
  const Result<WeightLoadReport> report = store.Load();
  ASSERT_TRUE(report.ok()) << report.error().Message();
  ExpectAll();
}

// Locking memory costs more than it gains where files are in memory already.
TEST_F(WeightLoadTest, ReadsOfCachedFilesAreSmall) {
  {
    std::ifstream file(weights_.path(), std::ios::binary);
    std::vector<char> all(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(all.size(), 0u);
  }
  MemoryCount count;
  CountedMemory staging(HostMemory(), count);
  WeightStore store =
      WeightStore::Device(HostMemory(), {.kind = DeviceKind::kCpu, .staging = &staging});
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(store.Place(weights_.Part(Name(i))).ok());
    ASSERT_TRUE(store.Allocate().ok());
  }
  ASSERT_TRUE(store.Load({.threads = 1}).ok());
  EXPECT_EQ(count.peak_bytes(), kCachedChunkBytes + kReadAlignment);
}

TEST_F(WeightLoadTest, ReportsProgressAndStops) {
  int64_t last = -1;
  int64_t whole = 0;
  WeightStore store = Placed();
  ASSERT_TRUE(store
                  .Load({.threads = 2,
                         .progress =
                             [&](int64_t done, int64_t total) {
                               EXPECT_GE(done, last);
                               last = done;
                               whole = total;
                               return true;
                             }})
                  .ok());
  EXPECT_EQ(last, whole);
  EXPECT_GE(whole, weights_.table().total_bytes());

  WeightStore stopped = Placed();
  const auto report =
      stopped.Load({.threads = 1, .progress = [](int64_t, int64_t) { return false; }});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kCancelled);
}

TEST_F(WeightLoadTest, NamesWhatAShortFileLacks) {
  const TensorEntry& last = *weights_.table().Find(Name(10));
  for (const int threads : {1, 4}) {
    WeightStore store = Placed();
    // Cut within the last tensor but one.
    std::filesystem::resize_file(weights_.path(), static_cast<uintmax_t>(last.offset + 1000));
    const auto report = store.Load({.threads = threads, .chunk_bytes = 1 << 20});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(Mentions(report.error(), {"model.safetensors", "\"tensor.10\"", "end of the file",
                                          "byte " + std::to_string(last.offset + 1000)}));
  }
}

TEST_F(WeightLoadTest, NamesAFileThatIsGone) {
  WeightStore store = Placed();
  std::filesystem::remove(weights_.path());
  const auto report = store.Load();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(Mentions(report.error(), {"model.safetensors"}));
}

TEST_F(WeightLoadTest, AnErrorOfTheDeviceIsTheLoads) {
  if (CudaDevices().ok()) GTEST_SKIP() << "there is a GPU";
  WeightStore store = WeightStore::Device(HostMemory(), {.kind = DeviceKind::kCuda});
  ASSERT_TRUE(store.Place(weights_.Part(Name(0))).ok());
  ASSERT_TRUE(store.Allocate().ok());
  ASSERT_TRUE(store.Place(weights_.Part(Name(0))).ok());
  const auto report = store.Load({.threads = 4});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace segue::model
