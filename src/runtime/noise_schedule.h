// The noise levels a request walks through: sigmas, from 1 (pure noise) to 0 (a picture).
//
// Source: FlowMatchEulerDiscreteScheduler and QwenImagePipeline of diffusers 0.42, in the same
// precision (float64 linspace rounded to float32, float32 from there on), so that the values agree
// to the last bit. Pure arithmetic: base only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/flow_match_config.h"
#include "segue/status.h"

namespace segue::runtime {

inline constexpr int kMaxSteps = 1000;

struct NoiseSchedule {
  double mu = 0;                 // the resolution-dependent shift that was applied
  std::vector<float> sigmas;     // steps + 1 values, falling; the last is 0
  std::vector<float> timesteps;  // steps values: sigma times num_train_timesteps

  int steps() const { return static_cast<int>(timesteps.size()); }
};

// The shift for an image of `image_rows` latent tokens: a line through (base_image_seq_len,
// base_shift) and (max_image_seq_len, max_shift), continued beyond both.
double ResolutionShift(const FlowMatchConfig& config, int64_t image_rows);

// The schedule of `steps` denoising steps. Errors: steps outside 1..kMaxSteps, image_rows < 1, or
// a configuration whose sigmas do not fall.
//
// With one step the terminal stretch of the reference divides zero by zero; there sigma stays 1.
Result<NoiseSchedule> MakeNoiseSchedule(const FlowMatchConfig& config, int steps,
                                        int64_t image_rows);

// What the transformer is fed at a step: the timestep divided by 1000, in the latents' dtype. With
// bf16 rounding that is two roundings, of the timestep and of the quotient (QwenImagePipeline).
float ModelTimestep(float timestep, bool bf16_rounding);
// Of every step.
std::vector<float> ModelTimesteps(const NoiseSchedule& schedule, bool bf16_rounding);

}  // namespace segue::runtime
