// Sums over the ranks of a tensor-parallel group.
//
// A rank is one device with its slice of the weights. Ranks may live in one process, in several or
// on several hosts: nothing here assumes a shared address space, only that every rank makes the
// same calls in the same order with the same shapes.
#pragma once

#include "device/stream.h"
#include "device/tensor_view.h"
#include "segue/status.h"

namespace segue::comm {

class Communicator {
 public:
  virtual ~Communicator() = default;

  // This rank's place in the group, in [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces `values` (float32 or bfloat16, any stride) by its elementwise sum over all ranks; each
  // rank ends with the same bytes. Enqueued on `stream`. Errors: another dtype; a transport that
  // failed.
  virtual Status AllReduceSum(const MatrixView& values, const Stream& stream) const = 0;
};

// The group of one: a sum over one rank is the value itself.
class SingleRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status AllReduceSum(const MatrixView& values, const Stream& stream) const override;
};

}  // namespace segue::comm
