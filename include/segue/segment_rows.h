// The lengths of a segment, as the device reads them too: this header uses <cstdint> alone.
#pragma once

#include <cstdint>

namespace segue::attention {

// Where a segment's rows lie in one of a batch's tensor sets. All zeros: no segment.
struct SegmentRows {
  int32_t source;   // index of the tensor set (TensorSet of attention.h)
  int32_t q_begin;  // first row in the set's Q and O
  int32_t q_rows;
  int32_t kv_begin;  // first row in the set's K and V
  int32_t kv_rows;
};

}  // namespace segue::attention
