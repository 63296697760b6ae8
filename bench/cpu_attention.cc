#include "bench/cpu_attention.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "attention/attention.h"
#include "bench/openblas.h"
#include "device/thread_pool.h"

namespace segue::bench {
namespace {

constexpr int64_t kPeerBlock = 192;   // query rows of one library call
constexpr int64_t kCheckedRows = 32;  // compared with the reference

struct AttentionCase {
  int64_t text = 0;
  int64_t image = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;

  int64_t rows() const { return text + image; }
  int64_t width() const { return int64_t{heads} * head_dim; }
};

Result<AttentionCase> ReadCase(const Case& one) {
  AttentionCase c;
  SEGUE_ASSIGN_OR_RETURN(c.text, one.Integer("text"));
  SEGUE_ASSIGN_OR_RETURN(c.image, one.Integer("image"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t heads, one.Integer("heads"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t head_dim, one.Integer("head_dim"));
  c.heads = static_cast<int32_t>(heads);
  c.head_dim = static_cast<int32_t>(head_dim);
  return c;
}

// The two segments' rows lie one behind the other, so that the peer can read them as one matrix;
// ours is told of two segments.
struct Operands {
  AttentionCase c;
  int64_t stride;  // of the fused projection
  std::vector<float> qkv, out, scores, want;
  std::vector<attention::Sequence> sequences;
  attention::Params params;

  explicit Operands(const AttentionCase& shape)
      : c(shape),
        stride(3 * c.width()),
        qkv(c.rows() * stride),
        out(c.rows() * c.width()),
        scores(kPeerBlock * c.rows()),
        want(std::min(kCheckedRows, c.rows()) * c.width()) {
    std::minstd_rand engine(1);
    for (float& value : qkv) value = (static_cast<float>(engine() % 2048) - 1024.0f) / 512.0f;
    sequences = {{{MakeSegment(0, c.text), MakeSegment(c.text, c.image)}}};
    params = {.options = {.q_heads = c.heads,
                          .kv_heads = c.heads,
                          .head_dim = c.head_dim,
                          .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))},
              .sequences = sequences};
  }

  attention::Segment MakeSegment(int64_t begin, int64_t rows) {
    float* first = qkv.data() + begin * stride;
    return {.q = {first, stride},
            .k = {first + c.width(), stride},
            .v = {first + 2 * c.width(), stride},
            .o = {out.data() + begin * c.width(), c.width()},
            .q_rows = rows,
            .kv_rows = rows};
  }

  // The first query rows against all keys, by the reference back end.
  Status CheckAgreement(const std::string& name, const kernels::Context& context) {
    std::vector<attention::Sequence> checked = sequences;
    attention::Segment queries = checked[0].segments[0];
    queries.q_rows = static_cast<int64_t>(want.size()) / c.width();
    queries.kv_rows = 0;
    queries.o = {want.data(), c.width()};
    for (attention::Segment& segment : checked[0].segments) segment.q_rows = 0;
    checked[0].segments.insert(checked[0].segments.begin(), queries);
    attention::Params reference = params;
    reference.sequences = checked;
    reference.backend = "ref";
    SEGUE_RETURN_IF_ERROR(attention::Attention(reference, context));
    double difference = 0.0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(double{out[i]} - want[i]));
    }
    // Values up to 2, weights that sum to 1: float32 rounding of the sums stays far below.
    if (difference <= 1e-5) return {};
    return Error{.code = ErrorCode::kInternal,
                 .operation = "verify attention",
                 .argument = "case " + name,
                 .got = "a difference of " + std::to_string(difference),
                 .wanted = "at most 1e-5"};
  }

  void MultiplyByPeer(const OpenBlas& peer) {
    const int64_t rows = c.rows();
    const int64_t width = c.width();
    for (int64_t head = 0; head < c.heads; ++head) {
      const float* q = qkv.data() + head * c.head_dim;
      for (int64_t row = 0; row < rows; row += kPeerBlock) {
        const int64_t count = std::min(kPeerBlock, rows - row);
        peer.MultiplyTransposed({count, rows, c.head_dim}, {q + row * stride, stride},
                                {q + width, stride}, scores.data(), rows);
        peer.Multiply({count, c.head_dim, rows}, {scores.data(), rows}, {q + 2 * width, stride},
                      out.data() + row * width + head * c.head_dim, width);
      }
    }
  }
};

}  // namespace

Result<std::vector<Row>> BenchAttention(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const AttentionCase c, ReadCase(one));
  Operands operands(c);
  ThreadPool pool(options.threads);
  kernels::KernelLog log;
  kernels::Context context = {
      .stream = Stream::Cpu(pool), .log = &log, .widest_isa = options.widest_isa};
  SEGUE_RETURN_IF_ERROR(attention::Attention(operands.params, context));
  Row row{.case_name = one.name,
          .variant = log.Snapshot().at("attention").front().kernel,
          .mode = "hot",
          .unit = "GFLOP/s"};
  context.log = nullptr;
  SEGUE_RETURN_IF_ERROR(operands.CheckAgreement(one.name, context));

  const Contender ours{.name = "segue", .version = "", .run = [&] {
                         return attention::Attention(operands.params, context);
                       }};
  Contender peer{.name = "OpenBLAS", .version = "", .run = {}};
  const Result<OpenBlas> blas = OpenBlas::Load(options.threads, options.widest_isa);
  if (blas.ok()) {
    peer.run = [&]() -> Status {
      operands.MultiplyByPeer(*blas);
      return {};
    };
    row.peer = blas->name() + " products, no softmax";
    row.peer_version = blas->version();
  }
  SEGUE_ASSIGN_OR_RETURN(const Comparison comparison, Measure(ours, peer, options.measure));
  const auto rows = static_cast<double>(c.rows());
  SetTimes(comparison, 4.0 * rows * rows * static_cast<double>(c.width()), 1e9, &row);
  return std::vector<Row>{std::move(row)};
}

}  // namespace segue::bench
