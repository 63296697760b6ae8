// Where a network runs: what decides the size of its blocks of memory.
#pragma once

#include "base/dtype.h"
#include "device/device.h"
#include "model/layers/forward_context.h"
#include "segue/attention_plan.h"

namespace segue::model {

struct Placement {
  Placement(int rank_count = 1) : ranks(rank_count) {}  // NOLINT: the CPU, by its ranks alone

  int ranks = 1;
  DeviceKind device = DeviceKind::kCpu;
  attention::Gpu gpu;  // what attention is planned for, on kCuda

  DType activation_type() const { return device == DeviceKind::kCpu ? DType::kF32 : DType::kBF16; }
};

// Where a context's work runs. Errors: its GPU does not answer.
Result<Placement> PlacementOf(const ForwardContext& context);

}  // namespace segue::model
