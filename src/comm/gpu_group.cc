// A group of GPUs of one process: arenas of one layout that every GPU reads and writes.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "comm/gpu_communicator.h"
#include "comm/group.h"
#include "device/cuda_memory.h"
#include "device/gpu.h"
#include "device/gpu_stream.h"

namespace segue::comm {
namespace {

constexpr char kOperation[] = "make a group";
constexpr uint32_t kProbe = 0x5e9e0000;  // anything but zero
constexpr std::chrono::milliseconds kProbeLimit{2000};
constexpr int32_t kThreads = 512;

// Makes a device current in a scope; the caller's thread may have another one.
class OnDevice {
 public:
  // `home`: the device to come back to.
  OnDevice(int device, int home) : home_(home), status_(SetCurrentDevice(device)) {}
  ~OnDevice() { (void)SetCurrentDevice(home_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  int home_;
  Status status_;
};

// What a rank has on its device.
struct Place {
  explicit Place(int index) : device(index), memory(index) {}
  ~Place() { memory.Free(arena); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  int device;
  CudaMemory memory;
  char* arena = nullptr;
  std::unique_ptr<GpuStream> stream;  // of the group's own: the start, and telling of failures
};

struct Foundation {
  ~Foundation() {
    places.clear();
    pinned.Free(failures);
    pinned.Free(word);
  }
  std::vector<std::unique_ptr<Place>> places;
  PinnedMemory pinned;
  kernels::PeerFailure* failures = nullptr;  // [ranks]
  uint32_t* word = nullptr;                  // what failed words are written from
  int64_t arena_bytes = 0;
  std::shared_ptr<GpuGroupState> state;
};

class GpuTransport final : public Transport {
 public:
  GpuTransport(const Foundation& foundation, int rank) : foundation_(&foundation), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(foundation_->places.size()); }
  int64_t arena_bytes() const override { return foundation_->arena_bytes; }
  void* At(int rank, int64_t offset) const override {
    return foundation_->places[static_cast<size_t>(rank)]->arena + offset;
  }

 private:
  const Foundation* foundation_;
  int rank_;
};

Status CheckDevices(Span<const int> devices) {
  if (std::set<int>(devices.begin(), devices.end()).size() == devices.size()) return {};
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = kOperation,
               .argument = "devices",
               .got = "one device twice",
               .wanted = "a device a rank: two ranks of one may wait for each other for ever"};
}

Status Allocate(Foundation& foundation, Span<const int> devices, int home) {
  const auto ranks = static_cast<int64_t>(devices.size());
  const int64_t bytes = ranks * static_cast<int64_t>(sizeof(kernels::PeerFailure));
  foundation.failures = static_cast<kernels::PeerFailure*>(foundation.pinned.Allocate(bytes));
  foundation.word = static_cast<uint32_t*>(foundation.pinned.Allocate(sizeof(uint32_t)));
  if (foundation.failures == nullptr || foundation.word == nullptr) {
    return Error{.code = ErrorCode::kOutOfMemory,
                 .operation = kOperation,
                 .argument = "page-locked memory",
                 .got = "a refused allocation",
                 .wanted = std::to_string(bytes) + " bytes"};
  }
  std::memset(foundation.failures, 0, static_cast<size_t>(bytes));
  foundation.places.reserve(devices.size());
  for (const int device : devices) {
    auto place = std::make_unique<Place>(device);
    const OnDevice on(device, home);
    SEGUE_RETURN_IF_ERROR(on.status());
    place->arena = static_cast<char*>(place->memory.Allocate(foundation.arena_bytes));
    if (place->arena == nullptr) {
      return Error{.code = ErrorCode::kOutOfMemory,
                   .operation = kOperation,
                   .argument = "arena on GPU " + std::to_string(device),
                   .got = "a refused allocation",
                   .wanted = std::to_string(foundation.arena_bytes) + " bytes"};
    }
    SEGUE_ASSIGN_OR_RETURN(GpuStream stream, GpuStream::Create());
    place->stream = std::make_unique<GpuStream>(std::move(stream));
    // Before any peer can write: whoever sees an arena sees zeros.
    SEGUE_RETURN_IF_ERROR(SetToZero(place->arena, foundation.arena_bytes, place->stream->get()));
    SEGUE_RETURN_IF_ERROR(place->stream->Synchronize());
    foundation.places.push_back(std::move(place));
  }
  return {};
}

// Loads the kernels on every GPU and finds how many CTAs all of them have room for.
Status Warm(Foundation& foundation, int home) {
  kernels::ReduceRoom& least = foundation.state->room;
  least = {.one_shot = kernels::kMaxReduceCtas, .two_shot = kernels::kMaxReduceCtas};
  std::fill(std::begin(least.sum_norm), std::end(least.sum_norm), kernels::kMaxReduceCtas);
  for (const auto& place : foundation.places) {
    const OnDevice on(place->device, home);
    SEGUE_RETURN_IF_ERROR(on.status());
    SEGUE_ASSIGN_OR_RETURN(const kernels::ReduceRoom room, kernels::MaxReduceCtas(kThreads));
    least.one_shot = std::min(least.one_shot, room.one_shot);
    least.two_shot = std::min(least.two_shot, room.two_shot);
    for (int i = 0; i < kernels::ReduceRoom::kWarps; ++i) {
      least.sum_norm[i] = std::min(least.sum_norm[i], room.sum_norm[i]);
    }
    SEGUE_RETURN_IF_ERROR(kernels::WarmReduce(place->stream->stream()));
    SEGUE_RETURN_IF_ERROR(place->stream->Synchronize());
  }
  return {};
}

// Waits for every rank's stream; false: not within the limit.
Result<bool> FinishWithin(const Foundation& foundation, int home, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (const auto& place : foundation.places) {
    const OnDevice on(place->device, home);
    SEGUE_RETURN_IF_ERROR(on.status());
    SEGUE_ASSIGN_OR_RETURN(const GpuEvent event, GpuEvent::Create());
    SEGUE_RETURN_IF_ERROR(event.Record(place->stream->get()));
    for (;;) {
      SEGUE_ASSIGN_OR_RETURN(const bool done, event.Query());
      if (done) break;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

using Communicators = std::vector<std::unique_ptr<Communicator>>;

const kernels::PeerGroup& PeersOf(const Communicators& ranks, size_t rank) {
  return static_cast<const GpuCommunicator&>(*ranks[rank]).group();
}

// `launch(group, stream)` on every rank. Why it did not end well; empty: it did.
template <typename Launch>
std::string OnEveryRank(const Foundation& foundation, const Communicators& ranks, int home,
                        const Launch& launch) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Place& place = *foundation.places[rank];
    const OnDevice on(place.device, home);
    if (!on.status().ok()) return on.status().error().Message();
    const Status launched = launch(PeersOf(ranks, rank), place.stream->stream());
    if (!launched.ok()) return launched.error().Message();
  }
  const Result<bool> finished = FinishWithin(foundation, home, kProbeLimit);
  if (!finished.ok()) return finished.error().Message();
  return *finished ? "" : "a write between GPUs did not end within 2 s";
}

// What arrived in the ranks' probe words, and what they read.
std::string CompareProbes(const Foundation& foundation, int home) {
  const auto ranks = static_cast<uint32_t>(foundation.places.size());
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const Place& place = *foundation.places[rank];
    const OnDevice on(place.device, home);
    auto control = std::make_unique<kernels::PeerControl>();
    const Status read =
        ReadBack(control.get(), place.arena, sizeof(kernels::PeerControl), place.stream->get());
    if (!read.ok()) return read.error().Message();
    for (uint32_t peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      if (control->probe[peer] != kProbe + peer || control->probe_read[peer] != kProbe + rank) {
        return "what GPU " + std::to_string(foundation.places[peer]->device) +
               " wrote did not arrive on GPU " + std::to_string(place.device);
      }
    }
  }
  return "";
}

// Why the GPUs do not reach each other's memory; empty: they do, which a write and a read between
// every two of them has shown. Drivers have claimed it where it was not so.
std::string Probe(const Foundation& foundation, const Communicators& ranks, int home) {
  if (foundation.state->options.without_peer_access) return "peer access was not asked for";
  for (const auto& place : foundation.places) {
    const OnDevice on(place->device, home);
    if (!on.status().ok()) return on.status().error().Message();
    for (const auto& peer : foundation.places) {
      if (peer == place) continue;
      const Status enabled = EnablePeerAccess(peer->device);
      if (!enabled.ok()) {
        return "GPU " + std::to_string(place->device) + " and GPU " + std::to_string(peer->device) +
               ": " + enabled.error().got;
      }
    }
  }
  std::string reason = OnEveryRank(foundation, ranks, home,
                                   [](const kernels::PeerGroup& group, const Stream& stream) {
                                     return kernels::WriteProbes(group, kProbe, stream);
                                   });
  if (!reason.empty()) return reason;
  reason = OnEveryRank(foundation, ranks, home,
                       [](const kernels::PeerGroup& group, const Stream& stream) {
                         return kernels::ReadProbes(group, stream);
                       });
  return reason.empty() ? CompareProbes(foundation, home) : reason;
}

// Writes every rank's failed word on a stream that nothing else uses, so that it passes kernels
// that spin. The caller's device is left as it was found: pointers name their devices.
void TellAll(const Foundation& foundation, uint32_t word) {
  *foundation.word = word;
  for (const auto& place : foundation.places) {
    auto& control = *reinterpret_cast<kernels::PeerControl*>(place->arena);
    (void)Upload(&control.failed, foundation.word, sizeof(uint32_t), place->stream->get());
  }
}

}  // namespace

Result<Group> Group::OnGpus(Span<const int> devices, const GroupOptions& options) {
  const auto ranks = static_cast<int>(devices.size());
  SEGUE_RETURN_IF_ERROR(CheckGroup(ranks, options));
  SEGUE_RETURN_IF_ERROR(CheckDevices(devices));
  SEGUE_ASSIGN_OR_RETURN(const int home, CurrentDeviceIndex());
  auto foundation = std::make_shared<Foundation>();
  foundation->arena_bytes = GpuCommunicator::ArenaBytes(ranks, options);
  foundation->state =
      std::make_shared<GpuGroupState>(std::vector<int>(devices.begin(), devices.end()));
  foundation->state->options = options;
  SEGUE_RETURN_IF_ERROR(Allocate(*foundation, devices, home));
  SEGUE_RETURN_IF_ERROR(Warm(*foundation, home));
  Group group;
  group.devices_.assign(devices.begin(), devices.end());
  group.ranks_.reserve(devices.size());
  for (int rank = 0; rank < ranks; ++rank) {
    group.ranks_.push_back(
        std::make_unique<GpuCommunicator>(std::make_unique<GpuTransport>(*foundation, rank),
                                          foundation->state, foundation->failures + rank));
  }
  if (ranks > 1) group.peer_access_refusal_ = Probe(*foundation, group.ranks_, home);
  foundation->state->peer_access_refusal = group.peer_access_refusal_;
  if (group.peer_access_refusal_.empty()) {
    foundation->state->tell = [raw = foundation.get()](uint32_t word) { TellAll(*raw, word); };
  }
  group.foundation_ = std::move(foundation);
  return group;
}

}  // namespace segue::comm
