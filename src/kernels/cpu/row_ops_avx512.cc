#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/row_ops_impl.h"
#include "kernels/cpu/simd_avx512.h"

namespace segue::kernels::cpu {

const RowCode kRowsAvx512 = RowCodeOf<Avx512>();

}  // namespace segue::kernels::cpu
