#include "runtime/mount.h"

namespace segue::runtime {
namespace {

struct Place {
  quality::Gate gate;
  model::GatedSite site;
};

constexpr Place kPlaces[] = {
    {quality::Gate::kGeluEpilogue, model::GatedSite::kFeedForward},
    {quality::Gate::kFloat32Norms, model::GatedSite::kNorms},
    {quality::Gate::kFloat32Heads, model::GatedSite::kHeads},
    {quality::Gate::kPackedTextQkv, model::GatedSite::kTextProjections},
};
static_assert(std::size(kPlaces) == quality::kGates);

}  // namespace

model::SiteSet SitesOf(quality::GateSet gates) {
  model::SiteSet sites;
  for (const Place& place : kPlaces) {
    if (gates.Has(place.gate)) sites.Add(place.site);
  }
  return sites;
}

quality::Mounting MountGates(Quality tier, quality::GateSet asked, const model::Dit& dit,
                             const model::ForwardContext& context) {
  return quality::Mount(tier, asked, [&](quality::Gate gate) -> std::string {
    for (const Place& place : kPlaces) {
      if (place.gate == gate) return dit.Refuses(place.site, context);
    }
    return "it has no site in this model";
  });
}

}  // namespace segue::runtime
