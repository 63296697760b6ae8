#include "quality/gate.h"

#include <algorithm>
#include <array>

namespace segue {
namespace quality {
namespace {

constexpr Quality kTiers[] = {Quality::kLossless, Quality::kHigh};

// In the order of Gate. docs/quality.md says why a candidate is none of the tier's.
const std::array<GateInfo, kGates>& Infos() {
  static const std::array<GateInfo, kGates> infos = {{
      {.name = "gelu-epilogue",
       .site = "feed-forward",
       .change = "GELU of the product's float32 sum, before its rounding",
       .in_high = true},
      {.name = "float32-norms",
       .site = "norms",
       .change = "gated sum, and normalisation with modulation, each rounded once"},
      {.name = "float32-heads",
       .site = "heads",
       .change = "normalisation and rotation of queries and keys, rounded once"},
      {.name = "packed-text-qkv",
       .site = "text projections",
       .change = "text queries, keys and values as one product, in another order of summation",
       .in_high = true},
  }};
  return infos;
}

Error GateError(std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "check request",
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

std::string TierNames() {
  std::string names;
  for (const Quality tier : kTiers) {
    names += (names.empty() ? "" : ", ") + std::string(QualityName(tier));
  }
  return names;
}

std::string GateNames() {
  std::string names;
  for (const GateInfo& info : Infos()) names += (names.empty() ? "" : ", ") + info.name;
  return names;
}

}  // namespace

const GateInfo& InfoOf(Gate gate) { return Infos()[static_cast<size_t>(gate)]; }

Result<GateSet> AskedGates(Quality tier, Span<const std::string> only) {
  if (std::find(std::begin(kTiers), std::end(kTiers), tier) == std::end(kTiers)) {
    return GateError("quality", std::to_string(static_cast<int>(tier)), "one of " + TierNames());
  }
  if (tier == Quality::kLossless && !only.empty()) {
    return GateError("gates", only[0] + " with quality lossless, which mounts none",
                     "quality high");
  }
  GateSet asked;
  for (size_t i = 0; i < kGates; ++i) {
    if (tier == Quality::kHigh && only.empty() && Infos()[i].in_high) {
      asked.Add(static_cast<Gate>(i));
    }
  }
  for (const std::string& name : only) {
    const auto found = std::find_if(Infos().begin(), Infos().end(),
                                    [&](const GateInfo& info) { return info.name == name; });
    if (found == Infos().end()) return GateError("gates", name, "one of " + GateNames());
    asked.Add(static_cast<Gate>(found - Infos().begin()));
  }
  return asked;
}

std::string MountedGates::ToString() const {
  std::string text = QualityName(tier);
  char separator = ':';
  for (size_t i = 0; i < kGates; ++i) {
    if (!gates.Has(static_cast<Gate>(i))) continue;
    text += separator + Infos()[i].name;
    separator = ',';
  }
  return text;
}

QualityReport Mounting::Report() const {
  QualityReport report = {.tier = mounted.tier, .mounted = {}, .refused = refused};
  report.mounted.reserve(kGates);
  for (size_t i = 0; i < kGates; ++i) {
    if (mounted.gates.Has(static_cast<Gate>(i))) report.mounted.push_back(Infos()[i].name);
  }
  return report;
}

Mounting Mount(Quality tier, GateSet asked, const std::function<std::string(Gate)>& refuses) {
  Mounting mounting = {.mounted = {.tier = tier}, .refused = {}};
  for (size_t i = 0; i < kGates; ++i) {
    const auto gate = static_cast<Gate>(i);
    if (!asked.Has(gate)) continue;
    std::string reason = refuses(gate);
    if (reason.empty()) {
      mounting.mounted.gates.Add(gate);
    } else {
      mounting.refused.push_back({.name = InfoOf(gate).name, .reason = std::move(reason)});
    }
  }
  return mounting;
}

}  // namespace quality

const char* QualityName(Quality quality) {
  switch (quality) {
    case Quality::kLossless:
      return "lossless";
    case Quality::kHigh:
      return "high";
  }
  return "none";
}

Result<Quality> ParseQuality(const std::string& name) {
  for (const Quality tier : quality::kTiers) {
    if (name == QualityName(tier)) return tier;
  }
  return quality::GateError("quality", "'" + name + "'", "one of " + quality::TierNames());
}

std::span<const GateInfo> QualityGates() { return quality::Infos(); }

}  // namespace segue
