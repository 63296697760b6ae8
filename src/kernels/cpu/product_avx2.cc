#include "kernels/cpu/linear_cpu.h"
#include "kernels/cpu/linear_impl.h"
#include "kernels/cpu/simd_avx2.h"

namespace segue::kernels::cpu {

const LinearCode kLinearAvx2 = {
    .limits = TileLimitsOf<Avx2>(),
    .run_task = [](const LinearParams& params, const ProductBlocks& blocks, int64_t task,
                   void* scratch) { LinearTask<Avx2>(params, blocks, task, scratch).Run(); },
};

}  // namespace segue::kernels::cpu
