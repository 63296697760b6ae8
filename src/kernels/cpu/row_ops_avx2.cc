#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/row_ops_impl.h"
#include "kernels/cpu/simd_avx2.h"

namespace segue::kernels::cpu {

const RowCode kRowsAvx2 = RowCodeOf<Avx2>();

}  // namespace segue::kernels::cpu
