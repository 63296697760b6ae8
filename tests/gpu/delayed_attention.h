// The attention kernel compiled with random delays (kernels/cuda/device/mbarrier.h). Programs that
// link this run it instead of the library's.
#pragma once

#include <cuda_runtime_api.h>

namespace segue::kernels {

// For the launches that follow. Waits for those before.
cudaError_t SetRandomDelays(bool on);

}  // namespace segue::kernels
