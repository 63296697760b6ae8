// Plans of the back ends that work in host memory: lengths are kept, and every run goes through the
// entry point that calls without a plan use.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "attention/attention.h"
#include "attention/backends/backends.h"
#include "attention/backends/cpu.h"
#include "attention/backends/plan_backend.h"
#include "attention/plan.h"
#include "attention/plan_check.h"
#include "attention/rows_view.h"
#include "device/thread_pool.h"

namespace segue::attention {
namespace {

int64_t QueryRows(Span<const SegmentRows> rows) {
  int64_t total = 0;
  for (const SegmentRows& segment : rows) total += segment.q_rows;
  return total;
}

// Pointers to segments; rows without tensors give lengths alone.
std::vector<Sequence> MakeSequences(const PlanSettings& settings, Span<const SegmentRows> rows,
                                    Span<const TensorSet> tensors) {
  const int64_t bytes = ElementBytes(settings.options.element_type);
  const auto segments = static_cast<size_t>(settings.max_segments);
  std::vector<Sequence> sequences(rows.size() / segments);
  for (size_t i = 0; i < rows.size(); ++i) {
    const SegmentRows& from = rows[i];
    if (from.q_rows == 0 && from.kv_rows == 0) continue;
    Segment segment{.q_rows = from.q_rows, .kv_rows = from.kv_rows};
    if (!tensors.empty()) {
      const TensorSet& set = tensors[from.source];
      segment.q = RowsFrom(set.q, from.q_begin, bytes);
      segment.k = RowsFrom(set.k, from.kv_begin, bytes);
      segment.v = RowsFrom(set.v, from.kv_begin, bytes);
      segment.o = RowsFrom(set.o, from.q_begin, bytes);
    }
    sequences[i / segments].segments.push_back(segment);
  }
  return sequences;
}

class HostPlan : public BackendPlan {
 public:
  HostPlan(const char* backend, const PlanSettings& settings)
      : backend_(backend), settings_(settings) {}

  int64_t workspace_bytes() const override { return 0; }

  Status Prepare(void*, void*) override { return {}; }

  Status SetLengths(Span<const SegmentRows> rows, void*, void*) override {
    rows_.assign(rows.begin(), rows.end());
    device_rows_ = nullptr;
    return {};
  }

  Status Refresh(const SegmentRows* rows, const int32_t* sequences, void*, void*) override {
    device_rows_ = rows;
    device_sequences_ = sequences;
    return {};
  }

  Status Run(Span<const TensorSet> tensors, float* lse, int64_t lse_stride, void*,
             void*) const override {
    Span<const SegmentRows> rows = rows_;
    if (device_rows_ != nullptr) {
      SEGUE_ASSIGN_OR_RETURN(rows, RefreshedRows());
      SEGUE_RETURN_IF_ERROR(CheckLengths(settings_, rows));
    }
    const std::vector<Sequence> sequences = MakeSequences(settings_, rows, tensors);
    if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(Threads());
    Params params{.options = settings_.options, .sequences = sequences, .backend = backend_};
    const kernels::Context context{.stream = Stream::Cpu(*pool_)};
    if (lse == nullptr) return Attention(params, context);
    // The entry point packs heads closely.
    const int64_t total = QueryRows(rows);
    std::vector<float> packed(static_cast<size_t>(settings_.options.q_heads * total));
    params.lse = packed.data();
    SEGUE_RETURN_IF_ERROR(Attention(params, context));
    for (int64_t head = 0; head < settings_.options.q_heads; ++head) {
      std::copy_n(packed.data() + head * total, total, lse + head * lse_stride);
    }
    return {};
  }

  Result<LengthsReport> ReadReport(void*, void*) const override {
    if (device_rows_ == nullptr) return LengthsReport{};
    const Result<Span<const SegmentRows>> rows = RefreshedRows();
    const Status checked = rows ? CheckLengths(settings_, *rows) : Status(rows.error());
    if (checked.ok()) return LengthsReport{};
    return LengthsReport{.error = 1, .sequence = 0, .description = checked.error().Message()};
  }

  Result<WorkList> Work(Span<const SegmentRows> rows) const override {
    if (std::strcmp(backend_, kCpuPlanBackend.name) != 0) {
      return Error{.code = ErrorCode::kUnsupported,
                   .operation = "list attention work",
                   .argument = backend_,
                   .got = "a back end that takes one row after the other",
                   .wanted = "one with tiles"};
    }
    const std::vector<Sequence> sequences = MakeSequences(settings_, rows, {});
    const TilePlan plan = MakeTilePlan(settings_.options, sequences, kQueryBlock);
    WorkList list{.query_rows = static_cast<int32_t>(kQueryBlock),
                  .key_rows = static_cast<int32_t>(kKeyTile),
                  .dynamic = true};
    list.workers.resize(static_cast<size_t>(Threads()));
    for (const Tile& tile : plan.tiles) {
      const SequenceRows& all = plan.rows[tile.sequence];
      int64_t keys = all.key;
      if (settings_.options.causal) {
        keys = std::clamp<int64_t>(keys - all.query + tile.query_begin + tile.query_rows, 0, keys);
      }
      list.tiles.push_back({.sequence = tile.sequence,
                            .head = tile.head,
                            .query_begin = tile.query_begin,
                            .query_rows = static_cast<int32_t>(tile.query_rows),
                            .key_tiles = static_cast<int32_t>((keys + kKeyTile - 1) / kKeyTile)});
    }
    return list;
  }

 private:
  int Threads() const {
    if (settings_.threads > 0) return settings_.threads;
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }

  Result<Span<const SegmentRows>> RefreshedRows() const {
    const int32_t count = *device_sequences_;
    if (count < 0 || count > settings_.max_sequences) {
      return Invalid("run attention", "sequences", std::to_string(count),
                     "0 to max_sequences, " + std::to_string(settings_.max_sequences));
    }
    return Span<const SegmentRows>(device_rows_,
                                   static_cast<size_t>(count) * settings_.max_segments);
  }

  const char* backend_;
  PlanSettings settings_;
  std::vector<SegmentRows> rows_;
  const SegmentRows* device_rows_ = nullptr;
  const int32_t* device_sequences_ = nullptr;
  mutable std::unique_ptr<ThreadPool> pool_;  // started by the first run
};

std::string Text(const char* reason) { return reason == nullptr ? "" : reason; }

}  // namespace

constinit const PlanBackend kCpuPlanBackend = {
    "cpu", Place::kCpu,
    [](const PlanSettings& settings) {
      return Text(RejectsCpu({.options = settings.options}, kernels::Context{}));
    },
    [](const PlanSettings& settings) -> Result<std::unique_ptr<BackendPlan>> {
      return std::unique_ptr<BackendPlan>(std::make_unique<HostPlan>("cpu", settings));
    }};

constinit const PlanBackend kRefPlanBackend = {
    "ref", Place::kCpu,
    [](const PlanSettings& settings) {
      return Text(RejectsRef({.options = settings.options}, kernels::Context{}));
    },
    [](const PlanSettings& settings) -> Result<std::unique_ptr<BackendPlan>> {
      return std::unique_ptr<BackendPlan>(std::make_unique<HostPlan>("ref", settings));
    }};

}  // namespace segue::attention
