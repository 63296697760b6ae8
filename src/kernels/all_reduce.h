// Sums over GPUs that read each other's memory, and the sum fused with what follows it in a block.
//
// Every rank launches the same call in the same order; the kernels meet through flags in each
// other's arenas. docs/kernels/all_reduce.md says how and derives the sizes.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/span.h"
#include "kernels/modulated_norm.h"
#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::kernels {

inline constexpr int kMaxPeers = 8;
inline constexpr int kMaxReduceParts = 2;
// Flags a rank keeps for each peer: the most CTAs of a call.
inline constexpr int kMaxReduceCtas = 1024;

// What stands at the beginning of every rank's arena, zeros before the first call.
struct PeerControl {
  // Flags are numbers of calls and only grow. [peer][cta], written by the peer.
  uint32_t arrived[kMaxPeers][kMaxReduceCtas];  // its partial sums are there
  uint32_t reduced[kMaxPeers][kMaxReduceCtas];  // its slice of the sum is there
  uint32_t calls[kMaxReduceCtas];               // made, by CTA; the rank's own
  // 1 + the rank that failed or did not arrive; 0: none. Stays. Written by anybody.
  uint32_t failed;
  uint32_t recorded;               // 1: the rank's failure is written down
  uint32_t probe[kMaxPeers];       // [peer], written by the peer when the group starts
  uint32_t probe_read[kMaxPeers];  // the rank's own: what it read in the peers' arenas
};

// What the first kernel that fails writes down for the host, in page-locked memory.
struct PeerFailure {
  uint32_t state;   // 0: nothing yet, 1: written
  uint32_t blamed;  // the rank that failed or did not arrive
  uint32_t call;    // counted from 1
  uint32_t told;    // 1: a peer or the host said so; 0: the time was up
  uint64_t bytes;   // of the call
};

// The group as one rank sees it. All pointers are addresses on this rank's device.
struct PeerGroup {
  int32_t rank = 0;
  int32_t ranks = 0;
  char* arena[kMaxPeers] = {};     // each begins with a PeerControl
  int64_t reduced_offset = 0;      // of the slices that two-shot hands round, in every arena
  uint64_t time_limit_ns = 0;      // of a spin
  PeerFailure* failure = nullptr;  // page-locked host memory
};

// Partial sums at `offset` of every rank's arena; all of them added up at `sum`. Offsets, sizes and
// `sum` are multiples of 16 bytes.
struct AllReducePart {
  int64_t offset = 0;
  void* sum = nullptr;
  int64_t bytes = 0;
};

// How a call is spread over the GPU; the same on every rank.
struct ReduceTuning {
  int32_t ctas = 0;       // at most; no more than MaxReduceCtas
  int32_t threads = 512;  // of a CTA: a multiple of 32, at most 512
  int32_t unroll = 4;     // 16-byte loads in flight from each peer in a thread: 1, 2 or 4
};

struct AllReduceParams {
  PeerGroup group;
  AllReducePart parts[kMaxReduceParts];
  int32_t part_count = 0;      // 0: the ranks meet and nothing else
  DType dtype = DType::kBF16;  // or kF32
  ReduceTuning tuning;
};

// The sum of each stream's partial sums is its branch: what AllReduce followed by ModulatedNorm
// gives, byte for byte. Two ranks, bfloat16.
struct SumNormParams {
  PeerGroup group;
  int64_t offsets[kMaxReduceParts] = {};  // of the partial sums, [rows, cols] without gaps
  ModulatedNormParams norm;               // `branch` says only that there is one
  int32_t ctas = 0;                       // at most
};

// Kernels of this file that share a GPU's room at a time: two groups may run at once, each with
// half of what can be resident, so that neither keeps the other's CTAs out for ever.
inline constexpr int kGroupsAtOnce = 2;

// CTAs of a call of each kind that are resident together on the current device beside those of
// kGroupsAtOnce - 1 more groups. Loads the kernels. Errors: no CUDA.
struct ReduceRoom {
  static constexpr int kWarps = 16;
  int32_t one_shot = 0;
  int32_t two_shot = 0;
  int32_t sum_norm[kWarps] = {};  // of 1, 2, ... warps
};
Result<ReduceRoom> MaxReduceCtas(int32_t threads);  // of the first two kinds

// Of a CTA of SumModulatedNorm for rows of so many columns.
int32_t SumNormWarps(int64_t cols);

// Runs every kernel of this file once, as a rank without peers that does nothing, so that no module
// is loaded while a rank spins. Waits for nothing.
Status WarmReduce(const Stream& stream);

// Each rank reads all partial sums and adds them up: for two ranks.
Status OneShotAllReduce(const AllReduceParams& params, const Context& context);
// Each rank adds up a slice, hands it round and collects the others': for three and more.
Status TwoShotAllReduce(const AllReduceParams& params, const Context& context);
Status SumModulatedNorm(const SumNormParams& params, const Context& context);

// Writes `value` + this rank into the probe words of every peer's arena.
Status WriteProbes(const PeerGroup& group, uint32_t value, const Stream& stream);
// Reads its own words in the peers' arenas into `probe_read`.
Status ReadProbes(const PeerGroup& group, const Stream& stream);

}  // namespace segue::kernels
