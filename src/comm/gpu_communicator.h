// Sums over GPUs of one process.
//
// Partial sums lie in two buffers of the arena that alternate from call to call: that a peer has
// arrived at call k + 1 proves that it has left call k, so that the product that writes call k + 2
// needs no second meeting. Which buffer a call uses is fixed when it is enqueued, and so recorded
// in a graph; EndRun makes the number of calls even, with an empty one where it is odd, so that
// whatever is launched next begins with the buffer that is free.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/nccl.h"
#include "comm/transport.h"
#include "kernels/all_reduce.h"

namespace segue::comm {

// What the ranks of a group have in common.
struct GpuGroupState {
  explicit GpuGroupState(std::vector<int> devices) : nccl(std::move(devices)) {}
  GroupOptions options;
  kernels::ReduceRoom room;  // the least of all GPUs
  std::string peer_access_refusal;
  Nccl nccl;
  // Tells every GPU: 1 + the rank that failed. Empty where GPUs do not reach each other.
  std::function<void(uint32_t word)> tell;
};

class GpuCommunicator final : public Communicator {
 public:
  static int64_t ControlBytes();
  static int64_t ArenaBytes(int ranks, const GroupOptions& options);

  // Precondition: the transport's arenas have ArenaBytes() and start with zeros; `failure` is
  // page-locked and zero.
  GpuCommunicator(std::unique_ptr<Transport> transport, std::shared_ptr<GpuGroupState> state,
                  kernels::PeerFailure* failure);

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void PlacePartials(Span<SumPart> parts) const override;
  using Communicator::AllReduceSum;
  Status AllReduceSum(Span<const SumPart> parts, const kernels::Context& context) const override;
  Status SumAndModulatedNorm(const kernels::ModulatedNormParams& params,
                             const kernels::Context& context) const override;
  Status EndRun(const kernels::Context& context) const override;
  void DropRun() const override;
  void Fail(const Error& reason) const override;
  Status health() const override;

  const kernels::PeerGroup& group() const { return group_; }
  // For benchmarks: how sums are spread over the GPU from now on; no CTAs stand for as many as fit.
  // All ranks set the same, each with its device current.
  Status SetTuning(const kernels::ReduceTuning& tuning) const;

  // The implementations, in the order of their lists; public for those lists only.
  struct Sum {
    const GpuCommunicator* self;
    Span<const SumPart> parts;
  };
  struct SumNorm {
    const GpuCommunicator* self;
    const kernels::ModulatedNormParams* params;
  };
  const char* RejectsOwn(const Sum& sum) const;
  Status RunOwn(const Sum& sum, const kernels::Context& context) const;
  const char* RejectsNccl(const Sum& sum, const kernels::Context& context) const;
  Status RunNccl(const Sum& sum, const kernels::Context& context) const;
  const char* RejectsFused(const SumNorm& sum, const kernels::Context& context) const;
  Status RunFused(const SumNorm& sum, const kernels::Context& context) const;
  Status RunComposed(const SumNorm& sum, const kernels::Context& context) const;

 private:
  int64_t BufferBytes() const;
  int64_t BufferOffset() const;  // of the next call's buffer in the arena
  // Copies a partial sum into the next call's buffer unless it is there, and says where.
  Result<int64_t> Stage(const MatrixView& partial, int64_t* used, const Stream& stream) const;
  // Refuses a second stream and a group that is unhealthy.
  Status Enter(const kernels::Context& context) const;

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<GpuGroupState> state_;
  kernels::PeerFailure* failure_;
  kernels::PeerGroup group_;
  mutable kernels::ReduceTuning tuning_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  mutable std::optional<void*> stream_;  // the first one; there is no other
  mutable std::optional<Error> error_;
  mutable int buffer_ = 0;  // of the next call
};

}  // namespace segue::comm
