#include "kernels/cpu/product.h"
#include "kernels/cpu/product_impl.h"
#include "kernels/cpu/simd_avx512.h"

namespace segue::kernels::cpu {

const ProductCode kProductAvx512 = {
    .limits = TileLimitsOf<Avx512>(),
    .run_task = [](const ProductParams& params, const ProductBlocks& blocks, int64_t task,
                   void* scratch) { ProductTask<Avx512>(params, blocks, task, scratch).Run(); },
};

}  // namespace segue::kernels::cpu
