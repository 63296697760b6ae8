// Which row of a table each packed row uses, from the entry of its request.
#pragma once

#include <cstdint>

#include "kernels/registry.h"

namespace segue::kernels {

struct RowIndexParams {
  const int32_t* slot = nullptr;   // [count]: of every packed row, its request's slot
  const int32_t* entry = nullptr;  // [slots]: of every slot, a row of the table
  int32_t slots = 0;
  int32_t* index = nullptr;  // [count], written: entry[slot[m]]
  int64_t count = 0;
};

// A step changes a few entries and this spreads them, so that nothing that a graph captured moves.
// Errors: null pointers; on the CPU also a slot out of range, which a GPU takes for the last.
Status RowIndex(const RowIndexParams& params, const Context& context);

}  // namespace segue::kernels
