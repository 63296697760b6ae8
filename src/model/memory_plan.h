// How much memory a request's activations need, counted by the same layouts a run uses.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "model/layers/placement.h"
#include "model/model_config.h"

namespace segue::model {

// Bytes of the workspace of each stage of the pipeline (QwenImage's functions of the same names).
// `lengths`: ids of each prompt; `dropped` leading rows of each are not kept.
int64_t EncodeBytes(const ModelConfig& config, const Placement& placement,
                    Span<const int64_t> lengths, int64_t dropped);
// On the host.
int64_t DenoiseBytes(const ModelConfig& config, int ranks, int64_t image_rows, int64_t text_rows,
                     int64_t timesteps);
int64_t DecodeBytes(const ModelConfig& config, const Placement& placement, int64_t grid_height,
                    int64_t grid_width);

// One picture: its size and the bound of its prompts.
struct PictureShape {
  int64_t grid_height = 0;  // picture height / 16
  int64_t grid_width = 0;
  int sequences = 1;      // 2 with guidance
  int64_t text_rows = 0;  // kept rows of each prompt
  int64_t dropped = 0;    // template rows before them
};

struct ActivationPlan {
  int64_t request = 0;  // lives from submission to the picture
  int64_t text_encoder = 0;
  int64_t transformer = 0;
  int64_t vae = 0;

  // The stages run one after another in the same memory.
  int64_t peak() const;
};

// Bytes a request's own state needs: latents, text of every branch.
int64_t RequestBytes(const ModelConfig& config, const Placement& placement, int64_t image_rows,
                     Span<const int64_t> text_rows);

ActivationPlan PlanActivations(const ModelConfig& config, const Placement& placement,
                               const PictureShape& picture);

}  // namespace segue::model
