// Chooses the fastest algorithm of a product's bit class: by byte comparison, then by time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/gpu_graph.h"
#include "device/gpu_stream.h"
#include "kernels/cuda/cublaslt/product.h"
#include "kernels/product_choice.h"
#include "kernels/product_scratch.h"
#include "segue/status.h"

namespace segue::kernels::cublaslt {

// Scratch memory for one call of Warm and a stream of its own.
class Chooser {
 public:
  // Memory for shapes up to the largest of these, one allocation of ProductScratchBytes. Errors:
  // memory (kOutOfMemory), streams.
  static Result<Chooser> Create(const Session& session, DeviceMemory& memory,
                                Span<const ProductShape> largest);
  ~Chooser();
  Chooser(Chooser&& other) noexcept = default;
  Chooser& operator=(Chooser&&) = delete;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;

  // Makes operands and the reference's result for what the calls below compare and time.
  Status Begin(const ProductForm& form, int64_t rows, const Algorithm& reference);

  // Whether the algorithm gives the reference's bytes.
  Result<bool> Equals(const Algorithm& algorithm);

  struct Winner {
    Algorithm algorithm;
    double seconds = 0.0;
    int32_t candidates = 0;
    int32_t unequal = 0;  // of those, turned away
  };
  // The reference is a candidate too, so there always is one. Products of long calls are timed for
  // `hot_seconds`.
  Result<Winner> Choose(double hot_seconds);

  // Whether the product on consecutive rows of the weight, as many as each part says, gives the
  // reference's columns. The part's own reference multiplies.
  Result<bool> PartsEqual(Span<const int64_t> part_n);

 private:
  Chooser(const Session& session, Arena memory, GpuStream stream)
      : session_(&session), memory_(std::move(memory)), stream_(std::move(stream)) {}
  Operands OperandsAt(int64_t copy, void* y) const;
  std::vector<Algorithm> Candidates() const;
  Result<GpuGraph> Record(const Algorithm& algorithm) const;
  Result<std::vector<double>> TimesInTurn(Span<const Algorithm> algorithms, int32_t rounds) const;
  Result<std::vector<double>> TimesAlone(Span<const Algorithm> algorithms, double seconds_each,
                                         double call_seconds) const;
  // Of got_ [rows, cols] from the reference's columns first_col ...
  Result<int64_t> Differences(int64_t cols, int64_t first_col);

  const Session* session_;
  Arena memory_;
  GpuStream stream_;
  ProductScratch scratch_;
  // Since Begin.
  std::optional<Product> product_;
  Algorithm reference_ = {};
  int64_t weight_copies_ = 1;
  int32_t calls_ = 1;  // in a graph that is timed
};

}  // namespace segue::kernels::cublaslt
