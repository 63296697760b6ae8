// Whether what is about to run fits into memory, said before anything is allocated.
#pragma once

#include <vector>

#include "base/span.h"
#include "device/device.h"
#include "model/model_config.h"
#include "model/weights/checkpoint.h"
#include "runtime/request_state.h"
#include "segue/status.h"

namespace segue::runtime {

// What random weights take, which are made in memory of their own, as bfloat16. Errors: as of
// QwenImage::Load.
Result<int64_t> RandomWeightBytes(const model::Checkpoint& checkpoint);

// Error (kOutOfMemory) unless the weights and a picture of the default size fit into what the host
// has available. An unknown amount (0) passes. Other errors: those of CheckNetworks.
Status CheckModelMemory(const model::Checkpoint& checkpoint, const DeviceInfo& host);

// Error (kOutOfMemory) unless the host has available what a request needs beside the `running`
// ones: its own state and the largest stage, which all share.
Status CheckRequestMemory(const model::ModelConfig& config, const RequestState& request,
                          Span<const RequestState* const> running, const DeviceInfo& host);

}  // namespace segue::runtime
