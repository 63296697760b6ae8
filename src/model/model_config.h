// The configurations of a model's three networks.
#pragma once

#include "model/dit/config.h"
#include "model/text_encoder/config.h"
#include "model/vae/config.h"

namespace segue::model {

struct ModelConfig {
  DitConfig dit;
  TextEncoderConfig text_encoder;
  VaeConfig vae;
};

}  // namespace segue::model
