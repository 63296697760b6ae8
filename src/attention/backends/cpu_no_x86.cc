// Stands in for the files of the x86 instruction sets elsewhere. RejectsCpu() refuses there, so
// nothing of this runs.
#include "attention/backends/cpu.h"

namespace segue::attention {

const TileCode kAttendTileAvx2 = nullptr;
const TileCode kAttendTileAvx512 = nullptr;

}  // namespace segue::attention
