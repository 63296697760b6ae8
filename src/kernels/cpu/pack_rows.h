// Packing rows on all threads of the pool, a memcpy a row.
#pragma once

#include "kernels/copy.h"
#include "kernels/pack.h"

namespace segue::kernels::cpu {

// Preconditions: what the operations of the same name check.
Status CopyBytes(const CopyParams& params, const Context& context);
Status PackRows(const PackParams& params, const Context& context);
Status ScatterRows(const PackParams& params, const Context& context);

}  // namespace segue::kernels::cpu
