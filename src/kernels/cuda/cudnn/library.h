// cuDNN loaded at run time.
#pragma once

#include "segue/status.h"

namespace segue::kernels {

// Loads the library once a process. Error (kUnsupported): where it was looked for, and what the
// dynamic loader said.
Status LoadCudnn();

}  // namespace segue::kernels
