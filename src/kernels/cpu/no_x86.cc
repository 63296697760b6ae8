// Stands in for the files of the x86 instruction sets elsewhere. MissingIsa() refuses them there,
// so nothing of this runs.
#include "kernels/cpu/product.h"

namespace segue::kernels::cpu {

const ProductCode kProductAvx2 = {};
const ProductCode kProductAvx512 = {};

}  // namespace segue::kernels::cpu
