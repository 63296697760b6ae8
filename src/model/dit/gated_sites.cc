// Which sites of the transformer can be gated, and why not.
#include "model/dit/dit.h"

namespace segue::model {

std::string Dit::Refuses(GatedSite site, const ForwardContext& context) const {
  if (context.rounding != kernels::Rounding::kBF16) {
    return "the forward is in float32, where nothing is rounded in between";
  }
  switch (site) {
    case GatedSite::kFeedForward:
      return RefusesGelu(context);
    case GatedSite::kTextProjections:
      return RefusesPackedText(context);
    case GatedSite::kNorms:
    case GatedSite::kHeads:
      break;
  }
  return "";
}

std::string Dit::RefusesGelu(const ForwardContext& context) const {
  for (size_t block = 0; block < blocks_.size(); ++block) {
    for (const StreamLayers* layers : {&blocks_[block].image, &blocks_[block].text}) {
      const std::string reason = layers->mlp_in.RefusesGelu(context);
      if (!reason.empty()) return "block " + std::to_string(block) + ": " + reason;
    }
  }
  return "";
}

std::string Dit::RefusesPackedText(const ForwardContext& context) const {
  if (context.packed_products) {
    return "one product has the bytes of three here, so that lossless takes it where it can";
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (blocks_[block].text.qkv_proj.stacked()) continue;
    return "block " + std::to_string(block) + ": the three weights do not lie together";
  }
  return "";
}

}  // namespace segue::model
