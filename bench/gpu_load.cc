#include "bench/gpu_load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bench/temporary_directory.h"
#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_stream.h"
#include "model/weights/tensor_table.h"
#include "model/weights/weight_file.h"

namespace segue::bench {
namespace {

using model::WeightStore;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRead = int64_t{4} << 20;
constexpr int64_t kShift = 4096;  // bytes between the beginnings of two tensors in one buffer
const Shape kShape = {18432, 3072};
constexpr int kThreads = 16;
constexpr int kRuns = 3;

Error Failed(const std::string& what, std::string got) {
  return {.code = ErrorCode::kInternal,
          .operation = "measure loading",
          .argument = what,
          .got = std::move(got),
          .wanted = ""};
}

// A checkpoint of bfloat16 tensors of one shape, in a directory of its own that goes away.
class Weights {
 public:
  static Result<std::unique_ptr<Weights>> Create(int64_t mib) {
    SEGUE_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Create());
    std::unique_ptr<Weights> weights(new Weights(std::move(directory)));
    const std::string& name = weights->directory_.path();
    const int64_t bytes = 2 * kShape.NumElements();
    weights->count_ = std::max<int64_t>(1, (mib << 20) / bytes);
    weights->elements_.resize(static_cast<size_t>((bytes + weights->count_ * kShift) / 8));
    uint64_t state = 1;
    for (uint64_t& value : weights->elements_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = state;
    }
    std::vector<model::NamedTensor> tensors;
    tensors.reserve(static_cast<size_t>(weights->count_));
    for (int64_t i = 0; i < weights->count_; ++i) {
      tensors.push_back({Name(i), {weights->Elements(i), DType::kBF16, kShape}});
    }
    SEGUE_RETURN_IF_ERROR(WriteTensorFile(name + "/model.safetensors", tensors));
    SEGUE_ASSIGN_OR_RETURN(model::TensorTable table,
                           model::TensorTable::Open(name, "model", "benchmark"));
    weights->table_ = std::make_unique<model::TensorTable>(std::move(table));
    return weights;
  }
  static std::string Name(int64_t i) { return "tensor." + std::to_string(i); }
  const void* Elements(int64_t i) const {
    return reinterpret_cast<const char*>(elements_.data()) + i * kShift;
  }
  int64_t count() const { return count_; }
  const model::TensorTable& table() const { return *table_; }
  const model::TensorFile& file() const { return *table_->files()[0]; }

  // The file's pages leave the page cache.
  void Drop() const {
    const int file = ::open(this->file().path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ::fsync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }

 private:
  explicit Weights(TemporaryDirectory directory) : directory_(std::move(directory)) {}

  TemporaryDirectory directory_;
  std::vector<uint64_t> elements_;
  int64_t count_ = 0;
  std::unique_ptr<model::TensorTable> table_;
};

Result<double> Microseconds(const std::function<Status()>& work) {
  const Clock::time_point begin = Clock::now();
  SEGUE_RETURN_IF_ERROR(work());
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Reads the whole file into one buffer a thread.
Status ReadFile(const Weights& weights, bool past_page_cache, int threads) {
  SEGUE_ASSIGN_OR_RETURN(const auto file, model::WeightFile::Open(weights.file(), past_page_cache));
  PinnedMemory pinned;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const auto read = [&] {
    void* memory = pinned.Allocate(kRead);
    if (memory == nullptr) failed = true;
    const int64_t size = weights.file().size_bytes();
    for (int64_t at = next.fetch_add(kRead); at < size && !failed; at = next.fetch_add(kRead)) {
      const int64_t end = std::min(at + kRead, size);
      const auto got = file->Read(at, end, static_cast<uint8_t*>(memory));
      if (got.bytes != end - at) failed = true;
    }
    pinned.Free(memory);
  };
  std::vector<std::jthread> readers;
  readers.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) readers.emplace_back(read);
  readers.clear();
  if (failed) return Failed("the file", "a read that failed");
  return {};
}

Status CopyOverBus(int64_t bytes, void* to) {
  constexpr int64_t kCopy = int64_t{16} << 20;
  PinnedMemory pinned;
  SEGUE_ASSIGN_OR_RETURN(const segue::GpuStream stream, segue::GpuStream::Create());
  void* from = pinned.Allocate(kCopy);
  if (from == nullptr) return Failed("page-locked memory", "none");
  Status status;
  for (int64_t at = 0; at < bytes && status.ok(); at += kCopy) {
    status = Upload(static_cast<char*>(to) + at, from, std::min(kCopy, bytes - at), stream.get());
  }
  Status finished = stream.Synchronize();
  pinned.Free(from);
  SEGUE_RETURN_IF_ERROR(std::move(status));
  return finished;
}

// A store that has placed every tensor.
Status Place(const Weights& weights, WeightStore& store, std::vector<WeightView>* views) {
  for (int pass = 0; pass < 2; ++pass) {
    views->clear();
    model::WeightReader reader(weights.table(), store);
    for (int64_t i = 0; i < weights.count(); ++i) {
      views->push_back(reader.Take(Weights::Name(i), kShape));
    }
    SEGUE_RETURN_IF_ERROR(reader.Finish());
    SEGUE_RETURN_IF_ERROR(store.Allocate());
  }
  return {};
}

Status Verify(const Weights& weights, const std::vector<WeightView>& views) {
  std::vector<uint16_t> got(static_cast<size_t>(kShape.NumElements()));
  for (size_t i = 0; i < views.size(); ++i) {
    SEGUE_RETURN_IF_ERROR(ReadBack(got.data(), views[i].data, 2 * kShape.NumElements(), nullptr));
    if (std::memcmp(got.data(), weights.Elements(static_cast<int64_t>(i)), 2 * got.size()) != 0) {
      return Failed(Weights::Name(static_cast<int64_t>(i)), "other bytes than the file's");
    }
  }
  return {};
}

struct Runs {
  std::vector<double> ours_us;
  double disk_us = 0;  // the best; 0: not measured
  double bus_us = 0;   // the best
};

Result<Runs> Measure(const Weights& weights, bool cold) {
  Runs runs;
  CudaMemory cuda(0);
  for (int run = 0; run < kRuns; ++run) {
    if (cold) {
      const int threads = run % 2 == 0 ? 1 : model::WeightFile::kDirectReads;
      weights.Drop();
      SEGUE_ASSIGN_OR_RETURN(const double us,
                             Microseconds([&] { return ReadFile(weights, true, threads); }));
      runs.disk_us = run == 0 ? us : std::min(runs.disk_us, us);
      weights.Drop();
    } else {
      SEGUE_RETURN_IF_ERROR(ReadFile(weights, false, kThreads));
    }
    WeightStore store = WeightStore::Device(cuda, {.kind = DeviceKind::kCuda});
    std::vector<WeightView> views;
    SEGUE_RETURN_IF_ERROR(Place(weights, store, &views));
    SEGUE_ASSIGN_OR_RETURN(const model::WeightLoadReport report, store.Load({.threads = kThreads}));
    runs.ours_us.push_back(report.seconds * 1e6);
    if (run == 0) SEGUE_RETURN_IF_ERROR(Verify(weights, views));
    const int64_t bytes = store.bytes(model::WeightGroup::kResident);
    void* begin = const_cast<void*>(views[0].data);
    SEGUE_ASSIGN_OR_RETURN(const double us,
                           Microseconds([&] { return CopyOverBus(bytes, begin); }));
    runs.bus_us = run == 0 ? us : std::min(runs.bus_us, us);
  }
  return runs;
}

Row RowOf(const Case& one, const Weights& weights, bool cold, Runs runs) {
  const Times times = Summarize(std::move(runs.ours_us));
  const auto bytes = static_cast<double>(weights.table().total_bytes());
  const bool disk = runs.disk_us > runs.bus_us;
  const double peer_us = disk ? runs.disk_us : runs.bus_us;
  return {.case_name = one.name + (cold ? "-cold" : "-warm"),
          .variant = "store",
          .mode = cold ? "cold" : "warm",
          .median_us = times.median_us,
          .min_us = times.min_us,
          .max_us = times.max_us,
          .rate = bytes / times.median_us / 1e3,
          .unit = "GB/s",
          .peer = disk ? "disk" : "bus",
          .peer_median_us = peer_us,
          .ratio = peer_us / times.median_us};
}

}  // namespace

Result<std::vector<Row>> BenchGpuLoad(const Case& one, const SuiteOptions&) {
  SEGUE_ASSIGN_OR_RETURN(const int64_t mib, one.Integer("mib"));
  if (mib < 1 || mib > 65536) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read benchmark suite",
                 .argument = "case " + one.name + ": mib",
                 .got = std::to_string(mib),
                 .wanted = "1 to 65536"};
  }
  SEGUE_RETURN_IF_ERROR(SetCurrentDevice(0));
  SEGUE_ASSIGN_OR_RETURN(const auto weights, Weights::Create(mib));
  std::vector<Row> rows;
  for (const bool cold : {true, false}) {
    SEGUE_ASSIGN_OR_RETURN(Runs runs, Measure(*weights, cold));
    rows.push_back(RowOf(one, *weights, cold, std::move(runs)));
  }
  return rows;
}

}  // namespace segue::bench
