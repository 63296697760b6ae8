#include "bench/cpu_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "attention/attention.h"
#include "bench/openblas.h"
#include "bench/timing.h"
#include "device/thread_pool.h"

namespace segue::bench {
namespace {

constexpr int64_t kPeerBlock = 192;   // query rows of one library call
constexpr int64_t kCheckedRows = 32;  // compared with the reference

struct Operands {
  int64_t width;   // heads * head_dim
  int64_t stride;  // of the fused projection
  std::vector<float> qkv, out, scores, want;
  std::vector<attention::Sequence> sequences;
  attention::Params params;

  explicit Operands(const AttentionShapeCase& c)
      : width(int64_t{c.heads} * c.head_dim),
        stride(3 * width),
        qkv(c.rows * stride),
        out(c.rows * width),
        scores(kPeerBlock * c.rows),
        want(std::min(kCheckedRows, c.rows) * width) {
    std::minstd_rand engine(1);
    for (float& value : qkv) value = (static_cast<float>(engine() % 2048) - 1024.0f) / 512.0f;
    sequences = {{{{.q = {qkv.data(), stride},
                    .k = {qkv.data() + width, stride},
                    .v = {qkv.data() + 2 * width, stride},
                    .o = {out.data(), width},
                    .q_rows = c.rows,
                    .kv_rows = c.rows}}}};
    params = {.options = {.q_heads = c.heads,
                          .kv_heads = c.heads,
                          .head_dim = c.head_dim,
                          .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))},
              .sequences = sequences};
  }

  Result<double> LargestDifference(const kernels::Context& context) {
    std::vector<attention::Sequence> checked = sequences;
    checked[0].segments[0].q_rows = static_cast<int64_t>(want.size()) / width;
    checked[0].segments[0].o.data = want.data();
    attention::Params reference = params;
    reference.sequences = checked;
    reference.backend = "ref";
    SEGUE_RETURN_IF_ERROR(attention::Attention(reference, context));
    double difference = 0.0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(double{out[i]} - want[i]));
    }
    return difference;
  }

  void MultiplyByPeer(const AttentionShapeCase& c, const OpenBlas& peer) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const float* q = qkv.data() + head * c.head_dim;
      for (int64_t row = 0; row < c.rows; row += kPeerBlock) {
        const int64_t count = std::min(kPeerBlock, c.rows - row);
        peer.MultiplyTransposed({count, c.rows, c.head_dim}, {q + row * stride, stride},
                                {q + width, stride}, scores.data(), c.rows);
        peer.Multiply({count, c.head_dim, c.rows}, {scores.data(), c.rows}, {q + 2 * width, stride},
                      out.data() + row * width + head * c.head_dim, width);
      }
    }
  }
};

Result<AttentionRow> BenchCase(const AttentionShapeCase& c, const AttentionOptions& options,
                               ThreadPool& pool, const OpenBlas* peer) {
  Operands operands(c);
  kernels::KernelLog log;
  kernels::Context context = {
      .stream = Stream::Cpu(pool), .log = &log, .widest_isa = options.widest_isa};
  SEGUE_RETURN_IF_ERROR(attention::Attention(operands.params, context));
  AttentionRow row = {.name = std::to_string(c.rows) + " rows, " + std::to_string(c.heads) +
                              " heads of " + std::to_string(c.head_dim),
                      .backend = log.Snapshot().at("attention").front().kernel};
  context.log = nullptr;
  SEGUE_ASSIGN_OR_RETURN(row.largest_difference, operands.LargestDifference(context));

  Status status;
  const auto ours = [&] { status = attention::Attention(operands.params, context); };
  std::function<void()> theirs;
  if (peer != nullptr) theirs = [&] { operands.MultiplyByPeer(c, *peer); };
  const Timing timing = TimePair(ours, theirs, options.rounds, options.sample_s);
  SEGUE_RETURN_IF_ERROR(status);
  const double gflop = 4e-9 * static_cast<double>(c.rows) * static_cast<double>(c.rows) *
                       static_cast<double>(operands.width);
  row.ours_ms = 1e3 * timing.ours_s;
  row.ours_gflops = gflop / timing.ours_s;
  if (peer != nullptr) {
    row.peer_gflops = gflop / timing.peer_s;
    row.ratio = row.ours_gflops / row.peer_gflops;
  }
  return row;
}

}  // namespace

std::vector<AttentionShapeCase> DefaultAttentionCases() {
  return {{4160, 4, 128}, {1024, 4, 128}, {84, 6, 32}};
}

Result<AttentionReport> BenchAttention(const AttentionOptions& options) {
  AttentionReport report;
  Result<OpenBlas> peer = OpenBlas::Load(options.threads, options.widest_isa);
  report.peer = peer.ok() ? peer->description() : peer.error().Message();
  ThreadPool pool(options.threads);
  for (const AttentionShapeCase& c : options.cases) {
    SEGUE_ASSIGN_OR_RETURN(AttentionRow row,
                           BenchCase(c, options, pool, peer.ok() ? &*peer : nullptr));
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace segue::bench
