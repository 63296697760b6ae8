// NCCL, loaded at run time and only when it is needed: it takes some 400 MiB of each GPU. What our
// own kernels do not serve goes there.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"
#include "segue/status.h"

namespace segue::comm {

// The NCCL communicators of one group, in one process. Thread-safe.
class Nccl {
 public:
  // Rank i is devices[i].
  explicit Nccl(std::vector<int> devices) : devices_(std::move(devices)) {}
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;
  // Waits for graphs that recorded calls: they go first.
  ~Nccl();

  // Loads the library and makes every rank's communicator, once; later calls return what the first
  // one did. Multicast is off: NCCL_NVLS_ENABLE=0 is put into the environment before loading. Must
  // not be called while a stream records. Errors (kUnsupported): no library; NCCL's own.
  Status Start();
  bool started() const;

  struct Message {
    const void* from;
    void* to;  // may be `from`
    int64_t count;
  };
  // Enqueues the sums of all messages as one call. Precondition: Start() succeeded.
  Status AllReduce(int rank, Span<const Message> messages, DType dtype, void* stream);

  // Ends what waits for ranks that will not come.
  void Abort();

 private:
  mutable std::mutex mutex_;
  std::vector<int> devices_;
  bool tried_ = false;
  bool aborted_ = false;
  Status start_;
  std::vector<void*> communicators_;  // ncclComm_t
};

// "2.27.3" once it is loaded; empty before.
std::string NcclVersion();

}  // namespace segue::comm
