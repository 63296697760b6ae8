// Gates, which a request asks for by name, at the sites of a model.
#pragma once

#include "model/dit/dit.h"
#include "model/layers/forward_context.h"
#include "quality/gate.h"

namespace segue::runtime {

// The sites that these gates change.
model::SiteSet SitesOf(quality::GateSet gates);

// Mounts the gates that the transformer can be gated with in forwards of this context. Nothing is
// changed in the model: a forward is gated by its own context alone. Host only.
quality::Mounting MountGates(Quality tier, quality::GateSet asked, const model::Dit& dit,
                             const model::ForwardContext& context);

}  // namespace segue::runtime
