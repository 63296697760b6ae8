// The CUDA implementations of packing (pack.h, pack_index.h, copy.h), without CUDA headers.
//
// They enqueue on the context's stream, allocate nothing and wait for nothing. A build without CUDA
// links no_pack.cc.
#pragma once

#include "kernels/copy.h"
#include "kernels/pack.h"
#include "kernels/pack_index.h"

namespace segue::kernels::cuda {

// Preconditions: what the operation of the same name checks.
Status CopyBytes(const CopyParams& params, const Context& context);
Status PackIndex(const PackIndexParams& params, const Context& context);
Status PackRows(const PackParams& params, const Context& context);
Status ScatterRows(const PackParams& params, const Context& context);

}  // namespace segue::kernels::cuda
