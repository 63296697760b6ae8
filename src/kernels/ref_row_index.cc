#include "kernels/reference.h"

namespace segue::kernels {

Status RefRowIndex(const RowIndexParams& params, const Context&) {
  for (int64_t m = 0; m < params.count; ++m) params.index[m] = params.entry[params.slot[m]];
  return {};
}

}  // namespace segue::kernels
