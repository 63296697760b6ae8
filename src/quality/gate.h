// Which gates a request asks for, and which of them a model mounts: pure judgement. What a gate
// changes is the model's business, where it is mounted the runtime's.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/span.h"
#include "segue/quality.h"

namespace segue::quality {

enum class Gate : uint8_t { kGeluEpilogue, kFloat32Norms, kFloat32Heads, kPackedTextQkv };
inline constexpr size_t kGates = 4;

class GateSet {
 public:
  constexpr GateSet() = default;
  constexpr void Add(Gate gate) { bits_ |= Bit(gate); }
  constexpr bool Has(Gate gate) const { return (bits_ & Bit(gate)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

  auto operator<=>(const GateSet&) const = default;

 private:
  static constexpr uint32_t Bit(Gate gate) { return 1u << static_cast<uint32_t>(gate); }
  uint32_t bits_ = 0;
};

const GateInfo& InfoOf(Gate gate);

// The gates of a tier, or those of `only` where it names any. Errors (kInvalidArgument): a value
// that is no tier; gates by name without a tier that mounts any; a name that no gate has.
Result<GateSet> AskedGates(Quality tier, Span<const std::string> only);

// What requests must have in common to share a forward, and a graph that is recorded of one.
struct MountedGates {
  Quality tier = Quality::kLossless;
  GateSet gates;

  auto operator<=>(const MountedGates&) const = default;
  // "lossless", "high", "high:gelu-epilogue,float32-heads"
  std::string ToString() const;
};

struct Mounting {
  MountedGates mounted;
  std::vector<RefusedGate> refused;

  QualityReport Report() const;
};

// `refuses` gives the reason why a gate cannot be mounted, "" where it can: for the whole model, so
// that a gate is mounted everywhere or nowhere.
Mounting Mount(Quality tier, GateSet asked, const std::function<std::string(Gate)>& refuses);

}  // namespace segue::quality
