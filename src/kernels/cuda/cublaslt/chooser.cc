#include "kernels/cuda/cublaslt/chooser.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/cublaslt/comparison.h"

namespace segue::kernels::cublaslt {
namespace {

constexpr char kOp[] = "choose a product's algorithm";

// Everything it needs to be the same algorithm lies in its words.
bool Same(const Algorithm& a, const Algorithm& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

Status CheckCall(const char* call, cudaError_t status) {
  if (status == cudaSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = kOp,
               .argument = call,
               .got = cudaGetErrorString(status),
               .wanted = "a working CUDA device"};
}

}  // namespace

Result<Chooser> Chooser::Create(const Session& session, DeviceMemory& memory,
                                Span<const ProductShape> largest) {
  SEGUE_ASSIGN_OR_RETURN(GpuStream stream, GpuStream::Create());
  const int64_t bytes = ProductScratchBytes(largest);
  Result<Arena> arena = Arena::Create(memory, bytes);
  if (!arena.ok()) {
    return Error{.code = ErrorCode::kOutOfMemory,
                 .operation = kOp,
                 .argument = "scratch memory",
                 .got = "a refused allocation",
                 .wanted = std::to_string(bytes) + " bytes"};
  }
  Chooser chooser(session, *std::move(arena), std::move(stream));
  chooser.scratch_ = ProductScratch::LayOut(chooser.memory_, largest);
  SEGUE_RETURN_IF_ERROR(chooser.memory_.Check());
  return chooser;
}

Chooser::~Chooser() {
  if (stream_.get() != nullptr) (void)stream_.Synchronize();  // else moved from
}

Operands Chooser::OperandsAt(int64_t copy, void* y) const {
  const ProductForm& form = product_->extent().form;
  const int64_t weight_bytes = form.n * form.k * 2;
  return {.x = scratch_.x,
          .weight = static_cast<char*>(scratch_.weight) + copy % weight_copies_ * weight_bytes,
          .bias = scratch_.bias,
          .y = y};
}

Status Chooser::Begin(const ProductForm& form, int64_t rows, const Algorithm& reference) {
  SEGUE_ASSIGN_OR_RETURN(Product product, Product::Create(*session_, Contiguous(form, rows)));
  product_.emplace(std::move(product));
  reference_ = reference;
  weight_copies_ = std::max<int64_t>(1, kTimedWeightBytes / (form.n * form.k * 2));
  // 300 us at the rates that are usual for the weight's reading and for the arithmetic.
  const auto weights = static_cast<double>(form.n * form.k);
  const double estimate =
      std::max(2.0 * static_cast<double>(rows) * weights / 650e12, 2.0 * weights / 4e12) + 2e-6;
  calls_ = static_cast<int32_t>(std::clamp(300e-6 / estimate, 2.0, 24.0));
  SEGUE_RETURN_IF_ERROR(FillComparison({.x = scratch_.x,
                                        .rows = rows,
                                        .weight = scratch_.weight,
                                        .copies = weight_copies_,
                                        .n = form.n,
                                        .k = form.k,
                                        .transposed = form.transposed_weight,
                                        .bias = scratch_.bias},
                                       stream_.stream()));
  return product_->Run(reference_, OperandsAt(0, scratch_.wanted),
                       static_cast<cudaStream_t>(stream_.get()));
}

Result<int64_t> Chooser::Differences(int64_t cols, int64_t first_col) {
  const Extent& extent = product_->extent();
  const auto bytes_each = static_cast<int32_t>(SizeOf(extent.form.y_dtype));
  const auto on = static_cast<cudaStream_t>(stream_.get());
  SEGUE_RETURN_IF_ERROR(
      CheckCall("cudaMemsetAsync", cudaMemsetAsync(scratch_.count, 0, sizeof *scratch_.count, on)));
  SEGUE_RETURN_IF_ERROR(
      CountDifferences({.a = static_cast<const char*>(scratch_.wanted) + first_col * bytes_each,
                        .a_stride = extent.form.n,
                        .b = scratch_.got,
                        .rows = extent.rows,
                        .cols = cols,
                        .bytes_each = bytes_each,
                        .count = scratch_.count},
                       stream_.stream()));
  uint64_t count = 0;
  SEGUE_RETURN_IF_ERROR(
      CheckCall("cudaMemcpyAsync",
                cudaMemcpyAsync(&count, scratch_.count, sizeof count, cudaMemcpyDeviceToHost, on)));
  SEGUE_RETURN_IF_ERROR(stream_.Synchronize());
  return static_cast<int64_t>(count);
}

Result<bool> Chooser::Equals(const Algorithm& algorithm) {
  const Product& product = *product_;
  const Extent& extent = product.extent();
  if (!product.Accepts(algorithm)) return false;
  const auto on = static_cast<cudaStream_t>(stream_.get());
  const size_t y_bytes =
      static_cast<size_t>(extent.rows * extent.form.n) * SizeOf(extent.form.y_dtype);
  // NaN: what is not written differs.
  SEGUE_RETURN_IF_ERROR(
      CheckCall("cudaMemsetAsync", cudaMemsetAsync(scratch_.got, 0xff, y_bytes, on)));
  if (!product.Run(algorithm, OperandsAt(0, scratch_.got), on).ok()) return false;
  SEGUE_ASSIGN_OR_RETURN(const int64_t differences, Differences(extent.form.n, 0));
  return differences == 0;
}

// Algorithms ranked for any number of pieces are adapted to the form's: where k is long and rows
// are few, the ranking without pieces holds the library's last resorts only, but what it would have
// taken with more pieces is fast with ours too.
std::vector<Algorithm> Chooser::Candidates() const {
  const Product& product = *product_;
  std::vector<Algorithm> candidates;
  const auto add = [&](Algorithm algorithm) {
    if (!product.Adapt(&algorithm)) return;
    for (const Algorithm& other : candidates) {
      if (Same(algorithm, other)) return;
    }
    candidates.push_back(algorithm);
  };
  for (const auto pieces : {Product::Pieces::kOne, Product::Pieces::kAny}) {
    for (const Algorithm& algorithm : product.Ranking(pieces)) add(algorithm);
  }
  add(reference_);
  return candidates;
}

// A graph of calls on different weights, long enough to be well above its own time.
Result<GpuGraph> Chooser::Record(const Algorithm& algorithm) const {
  return GpuGraph::Capture(
      stream_,
      [&]() -> Status {
        for (int32_t i = 0; i < calls_; ++i) {
          SEGUE_RETURN_IF_ERROR(product_->Run(algorithm, OperandsAt(i, scratch_.got),
                                              static_cast<cudaStream_t>(stream_.get())));
        }
        return {};
      },
      GpuGraph::Mode::kRelaxed);
}

// Seconds of a call of each, when all are launched in turn for a while with no idle time between:
// the mean over the second half, when the chip's clock has settled where the work itself puts it.
Result<std::vector<double>> Chooser::TimesInTurn(Span<const Algorithm> algorithms,
                                                 int32_t rounds) const {
  std::vector<GpuGraph> graphs;
  for (const Algorithm& algorithm : algorithms) {
    SEGUE_ASSIGN_OR_RETURN(GpuGraph graph, Record(algorithm));
    graphs.push_back(std::move(graph));
  }
  std::vector<GpuEvent> events;
  for (size_t i = 0; i < rounds * graphs.size() + 1; ++i) {
    SEGUE_ASSIGN_OR_RETURN(GpuEvent event, GpuEvent::Create(GpuEvent::Timing::kYes));
    events.push_back(std::move(event));
  }
  SEGUE_RETURN_IF_ERROR(events[0].Record(stream_.get()));
  for (size_t i = 1; i < events.size(); ++i) {
    SEGUE_RETURN_IF_ERROR(graphs[(i - 1) % graphs.size()].Launch(stream_));
    SEGUE_RETURN_IF_ERROR(events[i].Record(stream_.get()));
  }
  SEGUE_RETURN_IF_ERROR(stream_.Synchronize());
  std::vector<double> seconds(graphs.size(), 0.0);
  const int32_t skipped = rounds / 2;
  for (size_t i = skipped * graphs.size(); i + 1 < events.size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(const float ms, ElapsedMs(events[i], events[i + 1]));
    seconds[i % graphs.size()] += ms * 1e-3 / calls_ / (rounds - skipped);
  }
  return seconds;
}

// The same when each is launched by itself for `seconds_each`. In turn they share a clock, which
// hides that one takes more power than another: alone, the chip slows down for it. The first runs
// twice, since the chip comes to it cooler.
Result<std::vector<double>> Chooser::TimesAlone(Span<const Algorithm> algorithms,
                                                double seconds_each, double call_seconds) const {
  const double rounds = std::clamp(seconds_each / (call_seconds * calls_), 10.0, 2000.0);
  SEGUE_RETURN_IF_ERROR(TimesInTurn({algorithms.data(), 1}, static_cast<int32_t>(rounds)));
  std::vector<double> seconds(algorithms.size(), 0.0);
  for (size_t i = 0; i < algorithms.size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(const std::vector<double> one,
                           TimesInTurn({&algorithms[i], 1}, static_cast<int32_t>(rounds)));
    seconds[i] = one[0];
  }
  return seconds;
}

Result<Chooser::Winner> Chooser::Choose(double hot_seconds) {
  Winner winner{.algorithm = reference_};
  const std::vector<Algorithm> candidates = Candidates();
  winner.candidates = static_cast<int32_t>(candidates.size());
  std::vector<Algorithm> equal;
  for (const Algorithm& candidate : candidates) {
    SEGUE_ASSIGN_OR_RETURN(const bool same, Equals(candidate));
    if (same) equal.push_back(candidate);
  }
  winner.unequal = static_cast<int32_t>(candidates.size() - equal.size());
  if (equal.empty()) return winner;
  SEGUE_ASSIGN_OR_RETURN(std::vector<double> times, TimesInTurn(equal, 4));
  // The fastest few are timed longer, in the order of the ranking.
  constexpr size_t kFinalists = 5;
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const double limit = sorted[std::min(sorted.size(), kFinalists) - 1];
  std::vector<Algorithm> finalists;
  for (size_t i = 0; i < equal.size(); ++i) {
    if (times[i] <= limit) finalists.push_back(equal[i]);
  }
  // A product of much less than this never takes the chip to its power limit.
  constexpr double kLong = 50e-6;
  if (sorted[0] < kLong) {
    SEGUE_ASSIGN_OR_RETURN(times, TimesInTurn(finalists, 10));
  } else {
    const double each = hot_seconds / static_cast<double>(finalists.size() + 1);
    SEGUE_ASSIGN_OR_RETURN(times, TimesAlone(finalists, each, sorted[0]));
  }
  const size_t best = WinningTime(times);
  winner.algorithm = finalists[best];
  winner.seconds = times[best];
  return winner;
}

Result<bool> Chooser::PartsEqual(Span<const int64_t> part_n) {
  const Extent whole = product_->extent();
  int64_t first = 0;
  for (const int64_t n : part_n) {
    ProductForm form = whole.form;
    form.n = n;
    SEGUE_RETURN_IF_ERROR(CheckProductForm(kOp, form));
    Extent extent = Contiguous(form, whole.rows);
    extent.weight_stride = whole.weight_stride;
    SEGUE_ASSIGN_OR_RETURN(const Product part, Product::Create(*session_, extent));
    SEGUE_ASSIGN_OR_RETURN(const Algorithm algorithm, ReferenceAlgorithm(*session_, form));
    const int64_t offset = form.transposed_weight ? first : first * form.k;
    const Operands operands{.x = scratch_.x,
                            .weight = static_cast<const char*>(scratch_.weight) + offset * 2,
                            .bias = static_cast<const char*>(scratch_.bias) + first * 2,
                            .y = scratch_.got};
    SEGUE_RETURN_IF_ERROR(part.Run(algorithm, operands, static_cast<cudaStream_t>(stream_.get())));
    SEGUE_ASSIGN_OR_RETURN(const int64_t differences, Differences(n, first));
    if (differences != 0) return false;
    first += n;
  }
  return true;
}

}  // namespace segue::kernels::cublaslt
