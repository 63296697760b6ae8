// The ranks of one process: a thread each, a device each.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/span.h"
#include "comm/communicator.h"
#include "segue/status.h"

namespace segue::comm {

// The most ranks of a group: one host's GPUs.
inline constexpr int kMaxRanks = 8;

struct GroupOptions {
  // The largest sum, in bytes, that is served without a fallback; this many are still served. A
  // multiple of 16. 24 MiB is a 1024 x 1024 picture's.
  int64_t workspace_bytes = int64_t{32} << 20;
  // How long a rank waits for another one before the group is given up.
  std::chrono::milliseconds time_limit{10'000};
  // GPUs only: leave peer access alone, as where GPUs cannot read each other's memory.
  bool without_peer_access = false;
};

// Owns the arenas and the communicators. Outlives every call, and every graph that recorded one:
// NCCL waits for those before it lets go.
class Group {
 public:
  // Ranks that share this process's host memory. Errors: a size outside 1..kMaxRanks, a workspace
  // that is no multiple of 16, not enough memory.
  static Result<Group> OnHost(int size, const GroupOptions& options = {});

  // Rank i on devices[i], all different. Peer access is probed by real writes and reads with a time
  // limit; where it is missing, or does not carry what was written, sums go through NCCL and
  // `peer_access_refusal` says why. Modules are loaded and every kernel has run once when this
  // returns. Errors: as OnHost; no such device, the same device twice.
  static Result<Group> OnGpus(Span<const int> devices, const GroupOptions& options = {});

  Group(Group&& other) noexcept;
  Group& operator=(Group&& other) noexcept;
  ~Group();

  int size() const { return static_cast<int>(ranks_.size()); }
  const Communicator& rank(int rank) const { return *ranks_[static_cast<size_t>(rank)]; }
  // The device of a rank; -1: the host.
  int device(int rank) const { return devices_.empty() ? -1 : devices_[static_cast<size_t>(rank)]; }
  // Empty where GPUs reach each other's memory.
  const std::string& peer_access_refusal() const { return peer_access_refusal_; }

 private:
  Group() = default;

  // What the communicators stand on; destroyed after them.
  std::shared_ptr<void> foundation_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
  std::vector<int> devices_;
  std::string peer_access_refusal_;
};

// What both kinds of group check.
Status CheckGroup(int size, const GroupOptions& options);

// One thread a rank for as long as this lives; a GPU's rank has its device current there.
class RankThreads {
 public:
  // Errors: a device that cannot be made current.
  static Result<std::unique_ptr<RankThreads>> Start(const Group& group);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  // Runs `body(rank)` on every rank's thread and waits for all. A body that returns an error or
  // throws has failed: its communicator is told so, and the other ranks' calls end. Returns the
  // error that came first. One call at a time.
  Status Run(const std::function<Status(int rank)>& body);

 private:
  struct State;
  explicit RankThreads(const Group& group);
  void Loop(int rank);

  const Group* group_;
  std::unique_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace segue::comm
