#include "bench/cpu_product.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "bench/openblas.h"
#include "device/thread_pool.h"
#include "kernels/linear.h"

namespace segue::bench {
namespace {

struct ProductCase {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType weights = DType::kBF16;
};

Result<ProductCase> ReadCase(const Case& one) {
  ProductCase product;
  SEGUE_ASSIGN_OR_RETURN(product.m, one.Integer("m"));
  SEGUE_ASSIGN_OR_RETURN(product.n, one.Integer("n"));
  SEGUE_ASSIGN_OR_RETURN(product.k, one.Integer("k"));
  const std::string weights = one.Text("weights", "BF16");
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    if (weights == DTypeName(dtype)) {
      product.weights = dtype;
      return product;
    }
  }
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = "read benchmark suite",
               .argument = "case " + one.name + ": weights",
               .got = weights,
               .wanted = "BF16, F16 or F32"};
}

// Operands of one case; the weights twice, as stored and widened for the peer.
struct Operands {
  std::vector<float> x, wide_weights, y, peer_y;
  std::vector<uint16_t> half_weights;
  kernels::LinearParams params;

  explicit Operands(const ProductCase& c)
      : x(c.m * c.k), wide_weights(c.n * c.k), y(c.m * c.n), peer_y(c.m * c.n) {
    std::minstd_rand engine(1);
    const auto next = [&engine] {
      return (static_cast<float>(engine() % 2048) - 1024.0f) / 1024.0f;
    };
    for (float& value : x) value = next();
    // Multiples of 2^-10 up to 1 would need eleven bits: rounded, so that every dtype holds them.
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

// Both are float32 sums of the same k terms in different orders; 1e-5 of the largest result is ten
// times what they differ by at k = 12288.
Status CheckAgreement(const Case& one, const std::vector<float>& ours,
                      const std::vector<float>& peer) {
  double difference = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    difference = std::max(difference, std::abs(double{ours[i]} - peer[i]));
    largest = std::max(largest, std::abs(double{peer[i]}));
  }
  if (difference <= 1e-5 * largest) return {};
  return Error{.code = ErrorCode::kInternal,
               .operation = "verify product",
               .argument = "case " + one.name,
               .got = "a difference of " + std::to_string(difference / largest) + " of the largest",
               .wanted = "at most 1e-5"};
}

}  // namespace

Result<std::vector<Row>> BenchProduct(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const ProductCase c, ReadCase(one));
  Operands operands(c);
  ThreadPool pool(options.threads);
  kernels::KernelLog log;
  kernels::Context context = {
      .stream = Stream::Cpu(pool), .log = &log, .widest_isa = options.widest_isa};
  SEGUE_RETURN_IF_ERROR(kernels::Linear(operands.params, context));
  Row row{.case_name = one.name,
          .variant = log.Snapshot().at("linear").front().kernel,
          .mode = "hot",
          .unit = "GFLOP/s"};
  context.log = nullptr;

  const Contender ours{.name = "segue", .version = "", .run = [&] {
                         return kernels::Linear(operands.params, context);
                       }};
  Contender peer{.name = "OpenBLAS", .version = "", .run = {}};
  const Result<OpenBlas> blas = OpenBlas::Load(options.threads, options.widest_isa);
  if (blas.ok()) {
    peer.run = [&]() -> Status {
      blas->MultiplyTransposed({c.m, c.n, c.k}, {operands.x.data(), c.k},
                               {operands.wide_weights.data(), c.k}, operands.peer_y.data(), c.n);
      return {};
    };
    SEGUE_RETURN_IF_ERROR(peer.run());
    SEGUE_RETURN_IF_ERROR(CheckAgreement(one, operands.y, operands.peer_y));
    row.peer = blas->name();
    row.peer_version = blas->version();
  }
  SEGUE_ASSIGN_OR_RETURN(const Comparison comparison, Measure(ours, peer, options.measure));
  SetTimes(comparison,
           2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k),
           1e9, &row);
  return std::vector<Row>{std::move(row)};
}

}  // namespace segue::bench
