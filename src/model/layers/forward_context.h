// What every layer's forward needs besides its inputs, outputs and workspace.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "kernels/registry.h"

namespace segue::model {

struct ForwardContext {
  kernels::Context kernels;
  // Where results are rounded: kBF16 reproduces a model that runs in bfloat16.
  kernels::Rounding rounding = kernels::Rounding::kNone;
  // The transformer's only attention back end; empty: the first that it admits and that accepts.
  std::string attention_backend;
  // Whether weights that lie together may be multiplied as one (ColumnParallelGroup).
  bool packed_products = true;
  // The tensor-parallel group the layers were loaded for.
  const comm::Communicator* communicator = nullptr;
};

}  // namespace segue::model
