// The back ends of attention: each says why it cannot run, or runs.
#pragma once

#include "attention/attention.h"

namespace segue::attention {

// Plain softmax over all scores of a row, in double precision: the reference.
const char* RejectsRef(const Params& params, const kernels::Context& context);
Status RunRef(const Params& params, const kernels::Context& context);

}  // namespace segue::attention
