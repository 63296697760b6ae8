// What every layer's forward needs besides its inputs, outputs and workspace.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "kernels/registry.h"
#include "model/layers/gated_sites.h"

namespace segue::model {

struct ForwardContext {
  kernels::Context kernels;
  // Where results are rounded: kBF16 reproduces a model that runs in bfloat16.
  kernels::Rounding rounding = kernels::Rounding::kNone;
  // Sites of the transformer that are gated in this forward; none: as `rounding` says everywhere.
  SiteSet gated;
  // The transformer's only attention back end; empty: the first that it admits and that accepts.
  std::string attention_backend;
  // Whether weights that lie together may be multiplied as one (ColumnParallelGroup).
  bool packed_products = true;
  // The tensor-parallel group the layers were loaded for.
  const comm::Communicator* communicator = nullptr;

  // Of a chain of operations at a site.
  kernels::Rounding RoundingAt(GatedSite site) const {
    return gated.Has(site) && rounding == kernels::Rounding::kBF16 ? kernels::Rounding::kBF16Once
                                                                   : rounding;
  }
};

}  // namespace segue::model
