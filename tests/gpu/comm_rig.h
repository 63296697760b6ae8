// What tests of groups of GPUs are built from. Each is skipped with fewer than two GPUs.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_stream.h"

namespace segue::comm {

inline std::vector<int> AllGpus() {
  const auto gpus = CudaDevices();
  std::vector<int> devices(gpus.ok() ? std::min<size_t>(gpus->size(), kMaxRanks) : 0);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

inline std::string Text(const Status& status) {
  return status.ok() ? "" : status.error().Message();
}

class RankMemory;

// What a rank's body works with; its device is current.
struct RankRig {
  RankRig(const Group& group, int index)
      : rank(index),
        communicator(&group.rank(index)),
        device(group.device(index)),
        device_memory(device),
        pool(static_cast<char*>(device_memory.Allocate(kPoolBytes))),
        stream(*GpuStream::Create()) {
    EXPECT_NE(pool, nullptr);
    context = {.stream = stream.stream(), .log = &log};
  }

  MatrixView Row(const RankMemory& memory, DType dtype, int64_t count, int64_t begin = 0) const;
  template <typename T>
  void Write(const MatrixView& view, const std::vector<T>& values) const {
    EXPECT_EQ(Text(Upload(view.data, values.data(), static_cast<int64_t>(values.size() * sizeof(T)),
                          stream.get())),
              "");
    EXPECT_EQ(Text(stream.Synchronize()), "");
  }
  template <typename T>
  std::vector<T> Read(const MatrixView& view) const {
    std::vector<T> values(static_cast<size_t>(view.rows * view.cols));
    EXPECT_EQ(Text(ReadBack(values.data(), view.data,
                            static_cast<int64_t>(values.size() * sizeof(T)), stream.get())),
              "");
    return values;
  }
  // Which implementation ran last, and how often it ran: "one_shot 3".
  std::string Ran(const std::string& op = "all_reduce") const {
    std::string text;
    const auto snapshot = log.Snapshot();
    const auto found = snapshot.find(op);
    if (found == snapshot.end()) return "nothing";
    for (const auto& entry : found->second) {
      text += (text.empty() ? "" : ", ") + entry.kernel + " " + std::to_string(entry.calls);
    }
    return text;
  }

  ~RankRig() {
    EXPECT_EQ(Text(stream.Synchronize()), "");
    device_memory.Free(pool);
  }
  RankRig(const RankRig&) = delete;
  RankRig& operator=(const RankRig&) = delete;

  static constexpr int64_t kPoolBytes = int64_t{256} << 20;

  int rank;
  const Communicator* communicator;
  int device;
  CudaMemory device_memory;
  char* pool;
  int64_t used = 0;
  GpuStream stream;
  kernels::KernelLog log;
  kernels::Context context;
};

// Memory of a rank, all bytes 0xff: NaNs. Out of what the rig has, since allocating and freeing may
// wait for kernels of any GPU, and those for the rank that allocates.
class RankMemory {
 public:
  RankMemory(RankRig& rig, int64_t bytes) : rig_(&rig), before_(rig.used) {
    data_ = rig.pool + rig.used;
    rig.used += (bytes + 255) / 256 * 256;
    EXPECT_LE(rig.used, RankRig::kPoolBytes);
    EXPECT_EQ(cudaMemsetAsync(data_, 0xff, static_cast<size_t>(bytes),
                              static_cast<cudaStream_t>(rig.stream.get())),
              cudaSuccess);
  }
  ~RankMemory() { rig_->used = before_; }
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  template <typename T = void>
  T* data() const {
    return static_cast<T*>(static_cast<void*>(data_));
  }

 private:
  RankRig* rig_;
  int64_t before_;
  char* data_;
};

inline MatrixView RankRig::Row(const RankMemory& memory, DType dtype, int64_t count,
                               int64_t begin) const {
  return ContiguousMatrix(memory.data<char>() + begin * static_cast<int64_t>(SizeOf(dtype)), dtype,
                          1, count);
}

class GpuGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    const size_t gpus = AllGpus().size();
    if (gpus < 2) GTEST_SKIP() << gpus << " GPUs, two are needed";
  }

  void Make(size_t ranks, GroupOptions options = {}) {
    std::vector<int> devices = AllGpus();
    devices.resize(ranks);
    threads_.reset();
    rigs_.clear();
    group_.reset();
    Result<Group> group = Group::OnGpus(devices, options);
    ASSERT_TRUE(group.ok()) << group.error().Message();
    group_.emplace(std::move(*group));
    auto threads = RankThreads::Start(*group_);
    ASSERT_TRUE(threads.ok()) << threads.error().Message();
    threads_ = std::move(*threads);
  }
  // As every rank; what went wrong. A rank keeps its stream from run to run.
  std::string Run(const std::function<void(RankRig&)>& body) {
    rigs_.resize(static_cast<size_t>(group_->size()));
    // Before any rank waits for another one.
    const Status made = threads_->Run([&](int rank) -> Status {
      std::unique_ptr<RankRig>& rig = rigs_[static_cast<size_t>(rank)];
      if (rig == nullptr) rig = std::make_unique<RankRig>(*group_, rank);
      return {};
    });
    EXPECT_EQ(Text(made), "");
    return Text(threads_->Run([&](int rank) -> Status {
      RankRig& rig = *rigs_[static_cast<size_t>(rank)];
      body(rig);
      return rig.stream.Synchronize();
    }));
  }
  // Sizes of groups worth a test here.
  static std::vector<size_t> Sizes() {
    const size_t all = AllGpus().size();
    std::vector<size_t> sizes = {2};
    for (const size_t size : {size_t{3}, size_t{4}, all}) {
      if (size <= all && size > sizes.back()) sizes.push_back(size);
    }
    return sizes;
  }

  std::optional<Group> group_;
  std::vector<std::unique_ptr<RankRig>> rigs_;
  std::unique_ptr<RankThreads> threads_;
};

}  // namespace segue::comm
