#include "model/weights/weight_loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "device/gpu.h"
#include "device/gpu_stream.h"
#include "device/thread_pool.h"
#include "kernels/random_weights.h"
#include "model/weights/weight_file.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "load weights";

int ThreadsOf(const WeightLoadOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
}

// The reads of one load, shared by its threads.
class Load {
 public:
  Load(Span<const WeightTransfer> transfers, const WeightTarget& target,
       const WeightLoadOptions& options)
      : transfers_(transfers), target_(target), options_(options) {}

  // Opens the files and plans what is read of them.
  Status Prepare() {
    for (const WeightTransfer& transfer : transfers_) {
      const TensorFile* file = transfer.source.file;
      if (file == nullptr || files_.contains(file)) continue;
      SEGUE_ASSIGN_OR_RETURN(files_[file], WeightFile::Open(*file, options_.past_page_cache));
    }
    chunk_bytes_ = options_.chunk_bytes;
    if (chunk_bytes_ <= 0) {
      const bool cached = std::all_of(files_.begin(), files_.end(), [](const auto& file) {
        return file.second->IsMostlyCached();
      });
      chunk_bytes_ = cached ? kCachedChunkBytes : kDiskChunkBytes;
    }
    chunk_bytes_ = (chunk_bytes_ + kReadAlignment - 1) / kReadAlignment * kReadAlignment;
    reads_ = PlanReads(transfers_, chunk_bytes_);
    for (const WeightRead& read : reads_) total_ += read.end - read.begin;
    return {};
  }

  // Starts the threads, reports progress while they work, and waits for all of them.
  Status Run() {
    const int threads = std::min(ThreadsOf(options_), static_cast<int>(reads_.size()));
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) {
        workers.emplace_back([this] { Work(); });
        const std::lock_guard lock(mutex_);
        ++running_;
      }
    } catch (const std::system_error& error) {
      // Fewer threads do the same work.
      if (workers.empty()) Fail(SystemError(error.what()));
    }
    Watch();
    workers.clear();  // joins
    const std::lock_guard lock(mutex_);
    if (error_) return *error_;
    return {};
  }

  int64_t file_bytes() const { return file_bytes_; }
  int64_t direct_bytes() const { return direct_bytes_; }

 private:
  static Error SystemError(const char* what) {
    return {.code = ErrorCode::kOutOfMemory,
            .operation = kOperation,
            .argument = "a thread or memory for it",
            .got = what,
            .wanted = ""};
  }

  // The first error counts; the others follow from it or happened at the same time.
  void Fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    stopped_ = true;
  }

  void Watch() {
    std::unique_lock lock(mutex_);
    while (true) {
      const bool finished =
          idle_.wait_for(lock, std::chrono::milliseconds(50), [this] { return running_ <= 0; });
      if (options_.progress != nullptr && !stopped_) {
        lock.unlock();
        const bool go_on = options_.progress(done_, total_);
        if (!go_on) {
          Fail({.code = ErrorCode::kCancelled, .operation = kOperation, .got = "a cancellation"});
        }
        lock.lock();
      }
      if (finished) return;
    }
  }

  void Work() {
    try {
      Status status = ReadAll();
      if (!status.ok()) Fail(std::move(status).error());
    } catch (const std::exception& exception) {
      Fail(SystemError(exception.what()));
    }
    const std::lock_guard lock(mutex_);
    --running_;
    idle_.notify_one();
  }

  Status ReadAll() {
    SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<WeightLane> lane, MakeWeightLane(target_));
    Status status;
    std::vector<UploadRing::Copy> copies;
    while (status.ok() && !stopped_) {
      const size_t next = next_.fetch_add(1);
      if (next >= reads_.size()) break;
      status = Move(reads_[next], *lane, &copies);
    }
    // Even behind a failure: what is on its way must arrive before its memory goes.
    Status finished = lane->Finish();
    SEGUE_RETURN_IF_ERROR(std::move(status));
    return finished;
  }

  Status Move(const WeightRead& read, WeightLane& lane, std::vector<UploadRing::Copy>* copies) {
    SEGUE_ASSIGN_OR_RETURN(uint8_t* const memory, lane.Acquire(chunk_bytes_));
    SEGUE_RETURN_IF_ERROR(Fetch(read, memory));
    copies->clear();
    for (const WeightRead::Piece& piece : read.pieces) {
      const WeightTransfer& transfer = transfers_[piece.transfer];
      const int64_t at = PieceOffset(transfer, piece) - read.begin;
      const int64_t elements = CompactPiece(transfer, piece, memory + at);
      copies->push_back({.from = at,
                         .to = transfer.to + TargetElement(transfer.extent, piece.first),
                         .bytes = 2 * elements});
    }
    SEGUE_RETURN_IF_ERROR(lane.Upload(*copies));
    done_ += read.end - read.begin;
    return {};
  }

  Status Fetch(const WeightRead& read, uint8_t* memory) {
    if (read.file == nullptr) {
      const WeightSource& source = transfers_[read.pieces[0].transfer].source;
      std::memcpy(memory, static_cast<const uint8_t*>(source.view.data) + read.begin,
                  static_cast<size_t>(read.end - read.begin));
      return {};
    }
    const WeightFile::Got got = files_.at(read.file)->Read(read.begin, read.end, memory);
    if (got.error == 0 && got.bytes == read.end - read.begin) {
      file_bytes_ += got.bytes;
      if (got.direct) direct_bytes_ += got.bytes;
      return {};
    }
    return ReadError(read, got);
  }

  // Names the tensor that the first missing byte belongs to, or the next one.
  Error ReadError(const WeightRead& read, const WeightFile::Got& got) const {
    const int64_t at = read.begin + got.bytes;
    const WeightTransfer* transfer = nullptr;
    for (const WeightRead::Piece& piece : read.pieces) {
      const WeightTransfer& candidate = transfers_[piece.transfer];
      if (transfer == nullptr || PieceOffset(candidate, piece) <= at) transfer = &candidate;
    }
    return {
        .code = got.error == 0 ? ErrorCode::kCorrupt : ErrorCode::kIo,
        .operation = kOperation,
        .argument = transfer->source.name + " at byte " + std::to_string(at),
        .got = got.error == 0 ? "the end of the file" : std::generic_category().message(got.error),
        .wanted = std::to_string(read.end - at) + " bytes more"};
  }

  const Span<const WeightTransfer> transfers_;
  const WeightTarget& target_;
  const WeightLoadOptions& options_;
  int64_t chunk_bytes_ = 0;
  std::vector<WeightRead> reads_;
  int64_t total_ = 0;
  std::map<const TensorFile*, std::unique_ptr<WeightFile>> files_;

  std::atomic<size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> file_bytes_{0};
  std::atomic<int64_t> direct_bytes_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  int running_ = 0;  // may be below zero while threads start
  std::optional<Error> error_;
};

kernels::RandomWeightsParams ParamsOf(const WeightTransfer& transfer) {
  return {.key = transfer.source.random_key,
          .mean = transfer.source.mean,
          .deviation = transfer.source.deviation,
          .first = transfer.extent.first,
          .stride = transfer.extent.stride,
          .rows = transfer.extent.rows,
          .cols = transfer.extent.cols,
          .y = transfer.to};
}

Status EnqueueRandom(Span<const WeightTransfer> transfers, const kernels::Context& context) {
  for (const WeightTransfer& transfer : transfers) {
    if (!transfer.source.random()) continue;
    SEGUE_RETURN_IF_ERROR(kernels::RandomWeights(ParamsOf(transfer), context));
  }
  return {};
}

Status MakeRandom(Span<const WeightTransfer> transfers, const WeightTarget& target, int threads) {
  const bool any = std::any_of(transfers.begin(), transfers.end(),
                               [](const auto& transfer) { return transfer.source.random(); });
  if (!any) return {};
  if (target.kind == DeviceKind::kCpu) {
    ThreadPool pool(threads);
    return EnqueueRandom(transfers, {.stream = Stream::Cpu(pool)});
  }
  SEGUE_RETURN_IF_ERROR(SetCurrentDevice(target.device));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  Status enqueued = EnqueueRandom(transfers, {.stream = stream.stream()});
  Status finished = stream.Synchronize();
  SEGUE_RETURN_IF_ERROR(std::move(enqueued));
  return finished;
}

}  // namespace

Result<WeightLoadReport> LoadWeights(Span<const WeightTransfer> transfers,
                                     const WeightTarget& target, const WeightLoadOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  SEGUE_RETURN_IF_ERROR(MakeRandom(transfers, target, ThreadsOf(options)));
  Load load(transfers, target, options);
  SEGUE_RETURN_IF_ERROR(load.Prepare());
  SEGUE_RETURN_IF_ERROR(load.Run());
  WeightLoadReport report{.file_bytes = load.file_bytes(), .direct_bytes = load.direct_bytes()};
  for (const WeightTransfer& transfer : transfers) {
    report.placed_bytes += 2 * transfer.extent.elements();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace segue::model
