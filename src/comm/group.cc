#include "comm/group.h"

#include <cstring>
#include <utility>

#include "comm/host_communicator.h"
#include "device/device.h"

namespace segue::comm {
namespace {

// One allocation a rank; the peers' pointers are the same pointers.
struct HostArenas {
  ~HostArenas() {
    for (char* arena : arenas) HostMemory().Free(arena);
  }
  std::vector<char*> arenas;
  int64_t bytes = 0;
};

class HostTransport final : public Transport {
 public:
  HostTransport(const HostArenas& arenas, int rank) : arenas_(&arenas), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(arenas_->arenas.size()); }
  int64_t arena_bytes() const override { return arenas_->bytes; }
  void* At(int rank, int64_t offset) const override {
    return arenas_->arenas[static_cast<size_t>(rank)] + offset;
  }

 private:
  const HostArenas* arenas_;
  int rank_;
};

Error GroupError(std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "make a group",
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

}  // namespace

Status CheckGroup(int size, const GroupOptions& options) {
  if (size < 1 || size > kMaxRanks) {
    return GroupError("ranks", std::to_string(size), "1 to " + std::to_string(kMaxRanks));
  }
  if (options.workspace_bytes <= 0 || options.workspace_bytes % 16 != 0) {
    return GroupError("workspace", std::to_string(options.workspace_bytes) + " bytes",
                      "a multiple of 16");
  }
  if (options.time_limit.count() <= 0) {
    return GroupError("time limit", std::to_string(options.time_limit.count()) + " ms",
                      "at least 1 ms");
  }
  return {};
}

Result<Group> Group::OnHost(int size, const GroupOptions& options) {
  SEGUE_RETURN_IF_ERROR(CheckGroup(size, options));
  auto arenas = std::make_shared<HostArenas>();
  arenas->bytes = HostCommunicator::ArenaBytes(options);
  arenas->arenas.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    auto* arena = static_cast<char*>(HostMemory().Allocate(arenas->bytes));
    if (arena == nullptr) {
      return Error{.code = ErrorCode::kOutOfMemory,
                   .operation = "make a group",
                   .argument = "arena of rank " + std::to_string(rank),
                   .got = "a refused allocation",
                   .wanted = std::to_string(arenas->bytes) + " bytes"};
    }
    arenas->arenas.push_back(arena);
    // Only what is read before it is written; pages of sums stay untouched until they are needed.
    std::memset(arena, 0, static_cast<size_t>(HostCommunicator::ControlBytes()));
  }
  Group group;
  group.ranks_.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    group.ranks_.push_back(std::make_unique<HostCommunicator>(
        std::make_unique<HostTransport>(*arenas, rank), options));
  }
  group.foundation_ = std::move(arenas);
  return group;
}

Group::Group(Group&& other) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  if (this == &other) return *this;
  // Communicators first: they stand on the foundation.
  ranks_ = std::move(other.ranks_);
  foundation_ = std::move(other.foundation_);
  devices_ = std::move(other.devices_);
  peer_access_refusal_ = std::move(other.peer_access_refusal_);
  return *this;
}
Group::~Group() { ranks_.clear(); }

}  // namespace segue::comm
