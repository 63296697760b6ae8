// The back ends of attention: each says why it cannot run, or runs.
#pragma once

#include "attention/attention.h"

namespace segue::attention {

// Tiled online softmax over the segments in place, for the processor's instruction set.
const char* RejectsCpu(const Params& params, const kernels::Context& context);
Status RunCpu(const Params& params, const kernels::Context& context);

// Plain softmax over all scores of a row, in double precision: the reference.
const char* RejectsRef(const Params& params, const kernels::Context& context);
Status RunRef(const Params& params, const kernels::Context& context);

}  // namespace segue::attention
