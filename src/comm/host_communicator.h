// Sums over ranks that share host memory.
//
// Every rank writes its partial sums into its own arena, says so, waits for the others to say the
// same and adds all of them up by itself (one-shot): the bytes read are those of a broadcast, and
// no rank depends on another one's arithmetic. Two buffers alternate: that a peer has arrived at
// call k + 1 proves that it has left call k, so that the buffer of call k is free for call k + 2
// without a second meeting. A sum larger than the workspace is taken in pieces.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/transport.h"

namespace segue::comm {

class HostCommunicator final : public Communicator {
 public:
  static int64_t ControlBytes();
  static int64_t ArenaBytes(const GroupOptions& options);

  // Precondition: the transport's arenas have ArenaBytes(), the first ControlBytes() of them zero.
  HostCommunicator(std::unique_ptr<Transport> transport, const GroupOptions& options);

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void PlacePartials(Span<SumPart> parts) const override;
  using Communicator::AllReduceSum;
  Status AllReduceSum(Span<const SumPart> parts, const kernels::Context& context) const override;
  void Fail(const Error& reason) const override;
  Status health() const override;

 private:
  struct Control;
  // A part's elements in the order of its rows, [begin, begin + count) of them.
  struct Piece {
    const SumPart* part;
    int64_t begin;
    int64_t count;
    int64_t offset;  // in the buffer, in bytes
  };

  Control& ControlOf(int rank) const;
  char* Buffer(int rank) const;  // of the call under way
  Status RunPieces(Span<const Piece> pieces, const Stream& stream) const;
  // Until every peer has arrived at the call.
  Status Meet(uint64_t bytes) const;
  Status WaitFor(int peer, uint64_t bytes) const;
  void SumPiece(const Piece& piece, const Stream& stream) const;
  Error CallError(uint64_t bytes, std::string got, std::string wanted) const;
  // Remembers the first error and tells the peers.
  Error MakeUnhealthy(const Error& error) const;

  std::unique_ptr<Transport> transport_;
  int64_t workspace_bytes_;
  std::chrono::milliseconds time_limit_;
  mutable std::atomic<bool> busy_{false};  // a call is under way
  mutable uint64_t calls_ = 0;             // made, the one under way included
  mutable std::mutex mutex_;
  mutable std::optional<Error> error_;  // guarded by mutex_
};

}  // namespace segue::comm
