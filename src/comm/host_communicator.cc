#include "comm/host_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace segue::comm {
namespace {

constexpr int64_t kCacheLine = 64;
constexpr int64_t kAlignment = 256;  // of buffers, and of parts in them
constexpr int kBuffers = 2;
// Spins between two looks at the clock, and before the processor is given to somebody else: there
// may be more ranks than cores.
constexpr int kSpins = 64;
// Elements a task adds up: 64 KiB of float32 a rank, some tens of microseconds.
constexpr int64_t kTaskElements = 16384;
// Added up at once, in registers and L1.
constexpr int64_t kBlock = 256;

int64_t RoundedUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t Elements(const MatrixView& view) { return view.rows * view.cols; }
int64_t ElementBytes(const MatrixView& view) { return static_cast<int64_t>(SizeOf(view.dtype)); }

// body(pointer, element, count) for each run of neighbours among elements [begin, begin + count) of
// a matrix, numbered through its rows.
template <typename Body>
void ForRuns(const MatrixView& view, int64_t begin, int64_t count, const Body& body) {
  while (count > 0) {
    const int64_t row = begin / view.cols;
    const int64_t col = begin % view.cols;
    const int64_t run = std::min(view.cols - col, count);
    body(static_cast<char*>(view.data) + (row * view.stride + col) * ElementBytes(view), begin,
         run);
    begin += run;
    count -= run;
  }
}

void Accumulate(const char* from, DType dtype, bool first, int64_t count, float* sums) {
  if (dtype == DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(from);
    // The first rank's value itself: +0 added to it would lose the sign of -0.
    for (int64_t i = 0; i < count; ++i) sums[i] = first ? values[i] : sums[i] + values[i];
    return;
  }
  const auto* values = reinterpret_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = first ? BF16ToFloat(values[i]) : sums[i] + BF16ToFloat(values[i]);
  }
}

void StoreRounded(const float* sums, DType dtype, int64_t count, char* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, sums, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* values = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) values[i] = FloatToBF16(sums[i]);
}

class Releases {
 public:
  explicit Releases(std::atomic<bool>& flag) : flag_(&flag) {}
  ~Releases() { flag_->store(false, std::memory_order_release); }
  Releases(const Releases&) = delete;
  Releases& operator=(const Releases&) = delete;

 private:
  std::atomic<bool>* flag_;
};

}  // namespace

// What a rank says to the others, in its own arena. A line each: peers spin on `arrived`.
struct HostCommunicator::Control {
  alignas(kCacheLine) std::atomic<uint64_t> arrived;  // the last call whose partials are there
  alignas(kCacheLine) std::atomic<uint64_t> failed;   // 0, or 1 + the call that failed
  // Of the last calls, by parity: what every rank has to agree on.
  alignas(kCacheLine) std::atomic<uint64_t> bytes[kBuffers];
};

int64_t HostCommunicator::ControlBytes() { return RoundedUp(sizeof(Control)); }

int64_t HostCommunicator::ArenaBytes(const GroupOptions& options) {
  // Parts begin at multiples of the alignment: a little more than the bytes summed.
  return ControlBytes() + kBuffers * (RoundedUp(options.workspace_bytes) +
                                      static_cast<int64_t>(kMaxSumParts) * kAlignment);
}

HostCommunicator::HostCommunicator(std::unique_ptr<Transport> transport,
                                   const GroupOptions& options)
    : transport_(std::move(transport)),
      workspace_bytes_(options.workspace_bytes),
      time_limit_(options.time_limit) {}

HostCommunicator::Control& HostCommunicator::ControlOf(int rank) const {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  return *static_cast<Control*>(transport_->At(rank, 0));
}

char* HostCommunicator::Buffer(int rank) const {
  const int64_t bytes = (transport_->arena_bytes() - ControlBytes()) / kBuffers;
  return static_cast<char*>(
      transport_->At(rank, ControlBytes() + static_cast<int64_t>(calls_ % kBuffers) * bytes));
}

void HostCommunicator::PlacePartials(Span<SumPart> parts) const {
  for (SumPart& part : parts) part.partial = part.sum;
  if (parts.size() > kMaxSumParts || SumBytes({parts.data(), parts.size()}) > workspace_bytes_) {
    return;
  }
  ++calls_;  // the buffer of the next call
  char* at = Buffer(rank());
  --calls_;
  for (SumPart& part : parts) {
    part.partial = ContiguousMatrix(at, part.sum.dtype, part.sum.rows, part.sum.cols);
    at += RoundedUp(Elements(part.sum) * ElementBytes(part.sum));
  }
}

Status HostCommunicator::AllReduceSum(Span<const SumPart> parts,
                                      const kernels::Context& context) const {
  SEGUE_RETURN_IF_ERROR(CheckSumParts(parts));
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "all-reduce on rank " + std::to_string(rank()),
                 .argument = "communicator",
                 .got = "a second thread while a call is under way",
                 .wanted = "one thread at a time; a group of its own for another stream of work"};
  }
  const Releases releases(busy_);
  SEGUE_RETURN_IF_ERROR(health());
  if (context.log != nullptr) context.log->Count("all_reduce", "host", {});
  std::array<Piece, kMaxSumParts> pieces;
  size_t count = 0;
  int64_t bytes = 0;
  int64_t offset = 0;  // where PlacePartials puts parts too
  for (const SumPart& part : parts) {
    const int64_t element = ElementBytes(part.sum);
    for (int64_t begin = 0; begin < Elements(part.sum);) {
      if (workspace_bytes_ - bytes < element || count == pieces.size()) {
        SEGUE_RETURN_IF_ERROR(RunPieces({pieces.data(), count}, context.stream));
        bytes = offset = 0;
        count = 0;
      }
      const int64_t length =
          std::min(Elements(part.sum) - begin, (workspace_bytes_ - bytes) / element);
      pieces[count++] = {&part, begin, length, offset};
      bytes += length * element;
      offset += RoundedUp(length * element);
      begin += length;
    }
  }
  return RunPieces({pieces.data(), count}, context.stream);
}

Status HostCommunicator::RunPieces(Span<const Piece> pieces, const Stream& stream) const {
  ++calls_;
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    const MatrixView& partial = piece.part->partial;
    const int64_t element = ElementBytes(partial);
    char* own = Buffer(rank()) + piece.offset;
    bytes += static_cast<uint64_t>(piece.count * element);
    if (partial.data == own && piece.begin == 0) continue;  // it is where PlacePartials said
    ForRuns(partial, piece.begin, piece.count, [&](const char* from, int64_t at, int64_t count) {
      std::memcpy(own + (at - piece.begin) * element, from, static_cast<size_t>(count * element));
    });
  }
  SEGUE_RETURN_IF_ERROR(Meet(bytes));
  for (const Piece& piece : pieces) SumPiece(piece, stream);
  return {};
}

Status HostCommunicator::Meet(uint64_t bytes) const {
  Control& own = ControlOf(rank());
  own.bytes[calls_ % kBuffers].store(bytes, std::memory_order_relaxed);
  own.arrived.store(calls_, std::memory_order_release);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Status met = WaitFor(peer, bytes);
    if (!met.ok()) return MakeUnhealthy(met.error());
  }
  return {};
}

Status HostCommunicator::WaitFor(int peer, uint64_t bytes) const {
  const Control& control = ControlOf(peer);
  const auto deadline = std::chrono::steady_clock::now() + time_limit_;
  for (int spins = 0; control.arrived.load(std::memory_order_acquire) < calls_; ++spins) {
    if (spins % kSpins != kSpins - 1) continue;
    const uint64_t failed = control.failed.load(std::memory_order_acquire);
    if (failed != 0) {
      return CallError(
          bytes, "rank " + std::to_string(peer) + " failed at call " + std::to_string(failed - 1),
          "every rank to arrive");
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return CallError(bytes, "no rank " + std::to_string(peer),
                       "every rank within " + std::to_string(time_limit_.count()) + " ms");
    }
    std::this_thread::yield();
  }
  const uint64_t theirs = control.bytes[calls_ % kBuffers].load(std::memory_order_relaxed);
  if (theirs == bytes) return {};
  return CallError(bytes, std::to_string(theirs) + " bytes on rank " + std::to_string(peer),
                   "the same size on every rank");
}

void HostCommunicator::SumPiece(const Piece& piece, const Stream& stream) const {
  const MatrixView& sum = piece.part->sum;
  const int64_t element = ElementBytes(sum);
  std::array<const char*, kMaxRanks> partials{};
  for (int peer = 0; peer < size(); ++peer) {
    partials[static_cast<size_t>(peer)] = Buffer(peer) + piece.offset;
  }
  const int64_t tasks = (piece.count + kTaskElements - 1) / kTaskElements;
  stream.pool().ForEach(tasks, [&](int64_t task, int) {
    const int64_t first = task * kTaskElements;
    const int64_t last = std::min(first + kTaskElements, piece.count);
    std::array<float, kBlock> sums;
    for (int64_t begin = first; begin < last; begin += kBlock) {
      const int64_t count = std::min(kBlock, last - begin);
      for (int peer = 0; peer < size(); ++peer) {
        Accumulate(partials[static_cast<size_t>(peer)] + begin * element, sum.dtype, peer == 0,
                   count, sums.data());
      }
      ForRuns(sum, piece.begin + begin, count, [&](char* to, int64_t at, int64_t run) {
        StoreRounded(sums.data() + (at - piece.begin - begin), sum.dtype, run, to);
      });
    }
  });
}

Error HostCommunicator::CallError(uint64_t bytes, std::string got, std::string wanted) const {
  return {
      .code = ErrorCode::kInternal,
      .operation = "all-reduce on rank " + std::to_string(rank()) + " of " + std::to_string(size()),
      .argument = "call " + std::to_string(calls_) + ", " + std::to_string(bytes) + " bytes",
      .got = std::move(got),
      .wanted = std::move(wanted)};
}

Error HostCommunicator::MakeUnhealthy(const Error& error) const {
  const std::lock_guard lock(mutex_);
  if (!error_.has_value()) error_ = error;
  ControlOf(rank()).failed.store(calls_ + 1, std::memory_order_release);
  return error;
}

void HostCommunicator::Fail(const Error& reason) const {
  const std::lock_guard lock(mutex_);
  if (!error_.has_value()) error_ = reason;
  // Any thread may call: which call is under way is read from what the peers read.
  Control& own = ControlOf(rank());
  uint64_t none = 0;
  own.failed.compare_exchange_strong(none, own.arrived.load(std::memory_order_relaxed) + 1);
}

Status HostCommunicator::health() const {
  const std::lock_guard lock(mutex_);
  return error_.has_value() ? Status(*error_) : Status();
}

}  // namespace segue::comm
