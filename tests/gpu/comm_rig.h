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

// Memory of one device, all bytes 0xff: NaNs.
class RankMemory {
 public:
  RankMemory(int device, int64_t bytes) : memory_(device), data_(memory_.Allocate(bytes)) {
    EXPECT_EQ(cudaMemset(data_, 0xff, static_cast<size_t>(bytes)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~RankMemory() { memory_.Free(data_); }
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  template <typename T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  CudaMemory memory_;
  void* data_;
};

// What a rank's body works with; its device is current.
struct RankRig {
  RankRig(const Group& group, int index)
      : rank(index),
        communicator(&group.rank(index)),
        device(group.device(index)),
        stream(*GpuStream::Create()) {
    context = {.stream = stream.stream(), .log = &log};
  }

  MatrixView Row(const RankMemory& memory, DType dtype, int64_t count, int64_t begin = 0) const {
    return ContiguousMatrix(memory.data<char>() + begin * static_cast<int64_t>(SizeOf(dtype)),
                            dtype, 1, count);
  }
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

  int rank;
  const Communicator* communicator;
  int device;
  GpuStream stream;
  kernels::KernelLog log;
  kernels::Context context;
};

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
    return Text(threads_->Run([&](int rank) -> Status {
      std::unique_ptr<RankRig>& rig = rigs_[static_cast<size_t>(rank)];
      if (rig == nullptr) rig = std::make_unique<RankRig>(*group_, rank);
      body(*rig);
      return rig->stream.Synchronize();
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
