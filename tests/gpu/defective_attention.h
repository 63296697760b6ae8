// The attention kernel compiled with planted defects (kernels/cuda/device/planted_defect.h).
// Programs that link this run it instead of the library's, for bfloat16 and not causal.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace segue::kernels {

// The defect of the launches that follow: of memcheck 1, racecheck 2, initcheck 3, synccheck 4 (a
// warp's barrier) and 5 (the block's); 0: none.
cudaError_t PlantDefect(int32_t defect);

}  // namespace segue::kernels
