// The end of a denoising step for every request of a batch at once: guidance, the Euler step, and
// whether the results are numbers.
#pragma once

#include <cstdint>

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

// One request, in the context's memory, so that a captured graph serves other steps and settings.
struct SamplerRecord {
  int32_t prompt_row = 0;     // first row of the sequence with the prompt
  int32_t negative_row = -1;  // of the one with the negative prompt; -1: no guidance
  int32_t rows = 0;           // of each
  float guidance = 1.0f;      // true CFG scale
  float dt = 0.0f;            // sigma of the next step minus sigma of this one
};

// What SamplerStepParams::not_finite says of a request.
inline constexpr int32_t kPromptVelocityNotFinite = 1;
inline constexpr int32_t kNegativeVelocityNotFinite = 2;
inline constexpr int32_t kLatentsNotFinite = 4;

struct SamplerStepParams {
  // [image rows of all sequences, C]. The velocity after guidance is left at the prompt's rows.
  MatrixView velocity;
  // Like velocity, updated: a guided request's two sequences hold the same values.
  MatrixView latents;
  const SamplerRecord* records = nullptr;  // [count], rows that do not overlap
  int32_t count = 0;
  int32_t max_rows = 0;           // of any record
  int32_t* not_finite = nullptr;  // [count], written: bits above
  // Where Guidance and EulerStep round.
  Rounding rounding = Rounding::kNone;
};

// Guidance where there is a negative prompt, then EulerStep, per request: their bytes.
// Errors: shapes that do not fit; on the CPU also records that reach outside.
Status SamplerStep(const SamplerStepParams& params, const Context& context);

}  // namespace segue::kernels
