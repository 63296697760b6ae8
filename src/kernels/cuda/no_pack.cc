// Linked instead of the CUDA packing kernels where the build has no CUDA.
#include "kernels/cuda/pack/pack.h"

#include "kernels/cuda/no_cuda.h"

namespace segue::kernels::cuda {

Status CopyBytes(const CopyParams&, const Context&) { return NoCuda("copy bytes"); }

Status PackIndex(const PackIndexParams&, const Context&) { return NoCuda("pack index"); }

Status PackRows(const PackParams&, const Context&) { return NoCuda("pack rows"); }

Status ScatterRows(const PackParams&, const Context&) { return NoCuda("scatter rows"); }

}  // namespace segue::kernels::cuda
