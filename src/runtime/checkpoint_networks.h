// The networks of a checkpoint, built from its headers to see that every weight is there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "model/model_config.h"
#include "model/weights/checkpoint.h"
#include "segue/status.h"

namespace segue::runtime {

// Names of the tensors the engine does not read, by component ("transformer", "text_encoder",
// "vae").
using UnusedTensors = std::map<std::string, std::set<std::string>>;

// Errors: weights that are missing or of another shape or dtype.
Result<UnusedTensors> CheckNetworks(const model::Checkpoint& checkpoint);

// Bytes of a component's weights that the engine reads; the rest of the files stays on disk.
int64_t UsedBytes(const model::TensorTable& table, const std::set<std::string>& unused);

// Whether a tensor nobody reads belongs to a part of the reference's model that making a picture
// does not need: the vision tower and the output head, the VAE's encoder, its decoder's
// convolutions over time.
bool IsKnownUnused(const std::string& component, const std::string& tensor);

model::ModelConfig ConfigOf(const model::Checkpoint& checkpoint);

}  // namespace segue::runtime
