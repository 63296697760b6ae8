// Stands in for the files of the x86 instruction sets elsewhere. MissingIsa() refuses them there,
// so nothing of this runs.
#include "kernels/cpu/linear_cpu.h"

namespace segue::kernels::cpu {

const LinearCode kLinearAvx2 = {};
const LinearCode kLinearAvx512 = {};

}  // namespace segue::kernels::cpu
