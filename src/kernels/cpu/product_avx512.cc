#include "kernels/cpu/linear_cpu.h"
#include "kernels/cpu/linear_impl.h"
#include "kernels/cpu/simd_avx512.h"

namespace segue::kernels::cpu {

const LinearCode kLinearAvx512 = {
    .limits = TileLimitsOf<Avx512>(),
    .run_task = [](const LinearParams& params, const ProductBlocks& blocks, int64_t task,
                   void* scratch) { LinearTask<Avx512>(params, blocks, task, scratch).Run(); },
};

}  // namespace segue::kernels::cpu
