// Stands in for the files of the x86 instruction sets elsewhere. MissingIsa() refuses them there,
// so nothing of this runs.
#include "kernels/cpu/product.h"
#include "kernels/cpu/row_ops.h"

namespace segue::kernels::cpu {

const ProductCode kProductAvx2 = {};
const ProductCode kProductAvx512 = {};
const RowCode kRowsAvx2 = {};
const RowCode kRowsAvx512 = {};

}  // namespace segue::kernels::cpu
