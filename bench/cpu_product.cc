#include "bench/cpu_product.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "bench/openblas.h"
#include "bench/timing.h"
#include "device/thread_pool.h"
#include "kernels/linear.h"

namespace segue::bench {
namespace {

// Operands of one case; the weights twice, as stored and widened for the peer.
struct Operands {
  std::vector<float> x, wide_weights, y, peer_y;
  std::vector<uint16_t> half_weights;
  kernels::LinearParams params;

  explicit Operands(const ProductShapeCase& c)
      : x(c.m * c.k), wide_weights(c.n * c.k), y(c.m * c.n), peer_y(c.m * c.n) {
    std::minstd_rand engine(1);
    const auto next = [&engine] {
      return (static_cast<float>(engine() % 2048) - 1024.0f) / 1024.0f;
    };
    for (float& value : x) value = next();
    for (float& value : wide_weights) value = RoundToBF16(next());
    if (c.weights != DType::kF32) {
      half_weights.reserve(wide_weights.size());
      for (const float value : wide_weights) {
        half_weights.push_back(c.weights == DType::kF16 ? FloatToF16(value) : FloatToBF16(value));
      }
    }
    params = {
        .x = ContiguousMatrix(x.data(), c.m, c.k),
        .weight = {.data = c.weights == DType::kF32 ? static_cast<const void*>(wide_weights.data())
                                                    : half_weights.data(),
                   .dtype = c.weights,
                   .shape = {c.n, c.k}},
        .y = ContiguousMatrix(y.data(), c.m, c.n)};
  }
};

double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - b[i]));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return largest == 0.0 ? difference : difference / largest;
}

Result<ProductRow> BenchCase(const ProductShapeCase& c, const ProductOptions& options,
                             ThreadPool& pool, const OpenBlas* peer) {
  Operands operands(c);
  kernels::KernelLog log;
  kernels::Context context = {
      .stream = Stream::Cpu(pool), .log = &log, .widest_isa = options.widest_isa};
  SEGUE_RETURN_IF_ERROR(kernels::Linear(operands.params, context));
  ProductRow row = {.name = std::to_string(c.m) + " x " + std::to_string(c.n) + " x " +
                            std::to_string(c.k) + " " + DTypeName(c.weights),
                    .kernel = log.Snapshot().at("linear").front().kernel};

  context.log = nullptr;
  Status status;
  const auto ours = [&] { status = kernels::Linear(operands.params, context); };
  std::function<void()> theirs;
  if (peer != nullptr) {
    theirs = [&] {
      peer->MultiplyTransposed({c.m, c.n, c.k}, {operands.x.data(), c.k},
                               {operands.wide_weights.data(), c.k}, operands.peer_y.data(), c.n);
    };
    theirs();
    row.relative_difference = RelativeDifference(operands.y, operands.peer_y);
  }
  const Timing timing = TimePair(ours, theirs, options.rounds, options.sample_s);
  SEGUE_RETURN_IF_ERROR(status);
  const double gflop =
      2e-9 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  row.ours_ms = 1e3 * timing.ours_s;
  row.ours_gflops = gflop / timing.ours_s;
  if (peer != nullptr) {
    row.peer_gflops = gflop / timing.peer_s;
    row.ratio = row.ours_gflops / row.peer_gflops;
  }
  return row;
}

}  // namespace

std::vector<ProductShapeCase> DefaultProductCases() {
  return {{1024, 3072, 3072}, {1024, 12288, 3072}, {1024, 3072, 12288},
          {96, 3072, 3072},   {8, 3072, 3072},     {1, 3072, 3072},
          {128, 576, 192},    {128, 768, 192},     {128, 192, 768}};
}

Result<ProductReport> BenchProducts(const ProductOptions& options) {
  ProductReport report;
  Result<OpenBlas> peer = OpenBlas::Load(options.threads, options.widest_isa);
  report.peer = peer.ok() ? peer->description() : peer.error().Message();
  ThreadPool pool(options.threads);
  for (const ProductShapeCase& c : options.cases) {
    SEGUE_ASSIGN_OR_RETURN(ProductRow row,
                           BenchCase(c, options, pool, peer.ok() ? &*peer : nullptr));
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace segue::bench
