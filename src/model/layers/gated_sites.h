// Sites where a forward may leave the reference's roundings, each as a whole: in every block and
// stream of a network, or nowhere.
#pragma once

#include <compare>
#include <cstdint>

namespace segue::model {

enum class GatedSite : uint8_t {
  // The activation between the two products of a feed-forward network takes the first one's float32
  // sum.
  kFeedForward,
  // Gated residual sums, and normalisations with their modulation, are rounded once each.
  kNorms,
  // Normalisation and rotation of queries and keys are rounded once.
  kHeads,
  // Text queries, keys and values are one product, though its bytes are not those of three.
  kTextProjections,
};

class SiteSet {
 public:
  constexpr void Add(GatedSite site) { bits_ |= Bit(site); }
  constexpr bool Has(GatedSite site) const { return (bits_ & Bit(site)) != 0; }

  auto operator<=>(const SiteSet&) const = default;

 private:
  static constexpr uint32_t Bit(GatedSite site) { return 1u << static_cast<uint32_t>(site); }
  uint32_t bits_ = 0;
};

}  // namespace segue::model
