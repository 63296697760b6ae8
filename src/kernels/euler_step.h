// One step of the flow-match Euler method.
#pragma once

#include "device/tensor_view.h"
#include "kernels/registry.h"

namespace segue::kernels {

struct EulerStepParams {
  MatrixView x;     // [tokens, C]: latents, updated
  MatrixView v;     // [tokens, C]: velocity
  float dt = 0.0f;  // sigma of the next step minus sigma of this one
  // Of dt, of dt * v and of the sum: diffusers on a GPU, where dt is a tensor and is promoted to
  // the velocity's bfloat16.
  Rounding rounding = Rounding::kNone;
};

// x += dt * v. Errors: shapes that differ; no implementation for the device.
Status EulerStep(const EulerStepParams& params, const Context& context);

}  // namespace segue::kernels
