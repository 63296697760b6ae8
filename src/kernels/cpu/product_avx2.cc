#include "kernels/cpu/product.h"
#include "kernels/cpu/product_impl.h"
#include "kernels/cpu/simd_avx2.h"

namespace segue::kernels::cpu {

const ProductCode kProductAvx2 = {
    .limits = TileLimitsOf<Avx2>(),
    .run_task = [](const ProductParams& params, const ProductBlocks& blocks, int64_t task,
                   void* scratch) { ProductTask<Avx2>(params, blocks, task, scratch).Run(); },
};

}  // namespace segue::kernels::cpu
