#include "attention/backends/cpu.h"
#include "attention/backends/cpu_impl.h"
#include "kernels/cpu/simd_avx512.h"

namespace segue::attention {

const TileCode kAttendTileAvx512 = [](const Params& params, const TilePlan& plan, const Tile& tile,
                                      void* scratch) {
  AttentionTile<kernels::cpu::Avx512>(params, plan, tile, scratch).Run();
};

}  // namespace segue::attention
