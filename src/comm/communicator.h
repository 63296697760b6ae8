// Sums over the ranks of a tensor-parallel group.
//
// A rank is one device with its slice of the weights. Ranks may live in one process, in several or
// on several hosts: nothing here assumes a shared address space, only that every rank makes the
// same calls in the same order with the same shapes.
//
// A sum is added up in float32 from rank 0 upward and rounded once: every rank gets the same bytes,
// and so does every run. No call waits for ever. One that fails says which rank, which call and how
// many bytes, and leaves the group unhealthy: every later call fails with the same error.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "device/tensor_view.h"
#include "kernels/modulated_norm.h"
#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::comm {

// One matrix of a sum. All parts of a call travel together, for the price of one meeting.
struct SumPart {
  MatrixView partial;  // [M, N], float32 or bfloat16: what this rank contributes
  MatrixView sum;      // the same shape and dtype, written; may be `partial`, must not overlap else
};

// Parts of a call: the two streams of a block.
inline constexpr size_t kMaxSumParts = kernels::kMaxNormStreams;

class Communicator {
 public:
  virtual ~Communicator() = default;

  // This rank's place in the group, in [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Says where the partial sums of the next call are best written: memory that the peers read, so
  // that nothing is copied, or the sum's own where there is no such place. Fills `partial`.
  virtual void PlacePartials(Span<SumPart> parts) const = 0;

  // Each part's sum = its partials added over all ranks. Enqueued on the context's stream. Errors:
  // more than kMaxSumParts parts, other dtypes or shapes; a second thread or stream while the first
  // one uses the communicator (refused, the group stays healthy); a rank that did not arrive in
  // time or that failed, ranks that disagree.
  virtual Status AllReduceSum(Span<const SumPart> parts, const kernels::Context& context) const = 0;
  // The same for one matrix in place.
  Status AllReduceSum(const MatrixView& values, const kernels::Context& context) const;

  // The sum of every stream's branch, then ModulatedNorm of it: the bytes of AllReduceSum from
  // `branch` into `y` followed by kernels::ModulatedNorm with that y as the branch. Every stream
  // has a branch. Errors: those of both.
  virtual Status SumAndModulatedNorm(const kernels::ModulatedNormParams& params,
                                     const kernels::Context& context) const;

  // Ends a run of calls, before what was recorded is replayed or anything else is enqueued in
  // another order: afterwards the places of partial sums begin anew. Every rank calls it at the
  // same point, once a recording and once a forward that was not recorded.
  virtual Status EndRun(const kernels::Context& context) const;

  // A recording of calls was given up and none of it will run: the places of partial sums begin
  // anew.
  virtual void DropRun() const;

  // Declares this rank failed: its peers' calls end with an error instead of waiting. Any thread.
  virtual void Fail(const Error& reason) const;

  // The error that made the group unhealthy. On a GPU: as far as work has run.
  virtual Status health() const;
};

// What every implementation checks first.
Status CheckSumParts(Span<const SumPart> parts);
// Of all parts.
int64_t SumBytes(Span<const SumPart> parts);

// The group of one: a sum over one rank is the value itself.
class SingleRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void PlacePartials(Span<SumPart> parts) const override;
  using Communicator::AllReduceSum;
  Status AllReduceSum(Span<const SumPart> parts, const kernels::Context& context) const override;
};

// One rank of a larger group that runs by itself: a sum is its own part. For forwards whose results
// nobody wants, which load kernels before any rank waits for another.
class Rehearsal final : public Communicator {
 public:
  Rehearsal(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void PlacePartials(Span<SumPart> parts) const override { SingleRank().PlacePartials(parts); }
  using Communicator::AllReduceSum;
  Status AllReduceSum(Span<const SumPart> parts, const kernels::Context& context) const override {
    return SingleRank().AllReduceSum(parts, context);
  }

 private:
  int rank_;
  int size_;
};

}  // namespace segue::comm
