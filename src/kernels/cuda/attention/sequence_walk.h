// The segments of one sequence in the lanes of a warp, and where the rows of its key tiles lie.
#pragma once

#include "kernels/cuda/attention/config.h"

namespace segue::kernels::sm90 {

inline constexpr uint32_t kAllLanes = 0xffffffffu;

// Where the rows of a key tile lie; the same in all lanes. The warp walks from tile to tile, so
// this is a handful of additions but where a tile meets another segment: a lookup for each tile
// would take the one warp longer than the consumers take to use the tile.
struct KeyPlace {
  int32_t key;    // of the tile's first row, on the key axis
  int32_t begin;  // of the segment that row lies in, or of the gap after it
  int32_t left;   // rows of that segment from `key` on
  int32_t row;    // of `key` in the source's K and V
  int32_t source;
  bool last;  // no later segment has rows
  bool ends;  // the segment ends where the tensors do
};

// One warp executes all members together. kInOrder: segments lie on the key axis in their order.
template <bool kInOrder>
class SequenceWalk {
 public:
  __device__ __forceinline__ explicit SequenceWalk(const KernelParams& params)
      : params_(params), lane_(threadIdx.x % 32) {}

  // Lane s keeps segment s.
  __device__ __forceinline__ void Read(int32_t sequence) {
    if (sequence == sequence_) return;
    sequence_ = sequence;
    const auto* sequences = reinterpret_cast<const int4*>(params_.schedule + SequencesOffset());
    const int4 record = __ldg(sequences + sequence);
    record_ = {record.x, record.y, record.z, record.w};
    const auto* segments =
        reinterpret_cast<const int4*>(params_.schedule + SegmentsOffset(params_.capacity));
    const int32_t own = lane_ < params_.capacity.segments ? lane_ : 0;
    const int64_t at = (int64_t{sequence} * params_.capacity.segments + own) * 2;
    const int4 low = __ldg(segments + at);
    const int4 high = __ldg(segments + at + 1);
    segment_ = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  }

  __device__ __forceinline__ const SequenceRecord& record() const { return record_; }
  __device__ __forceinline__ const SegmentRecord& segment() const {
    return segment_;
  }  // the lane's

  // What KeyLimit and the search read of segment s.
  __device__ __forceinline__ SegmentRecord SegmentOf(int32_t s) const {
    SegmentRecord record{};
    record.kv_rows = __shfl_sync(kAllLanes, segment_.kv_rows, s);
    record.kv_position = __shfl_sync(kAllLanes, segment_.kv_position, s);
    record.key_begin = __shfl_sync(kAllLanes, segment_.key_begin, s);
    return record;
  }

  // Finds the segment with rows that begins last of those that begin at or before `key`.
  __device__ __forceinline__ KeyPlace FindPlace(int32_t key) const {
    const bool used = lane_ < params_.capacity.segments && segment_.kv_rows > 0;
    const bool before = used && segment_.key_begin <= key;
    int32_t found = 0;
    if constexpr (kInOrder) {
      found = 31 - __clz(static_cast<int>(__ballot_sync(kAllLanes, before) | 1u));
    } else {
      const int32_t begin = __reduce_max_sync(kAllLanes, before ? segment_.key_begin : 0);
      const bool is_found = before && segment_.key_begin == begin;
      found = __ffs(static_cast<int>(__ballot_sync(kAllLanes, is_found))) - 1;
    }
    KeyPlace place;
    place.key = key;
    place.begin = __shfl_sync(kAllLanes, segment_.key_begin, found);
    const int32_t kv_rows = __shfl_sync(kAllLanes, segment_.kv_rows, found);
    const int32_t kv_begin = __shfl_sync(kAllLanes, segment_.kv_begin, found);
    place.source = __shfl_sync(kAllLanes, segment_.source, found);
    place.left = place.begin + kv_rows - key;
    place.row = kv_begin + key - place.begin;
    place.last = __all_sync(kAllLanes, !used || segment_.key_begin <= place.begin) != 0;
    place.ends = kv_begin + kv_rows == params_.kv_rows[place.source];
    return place;
  }

  // Of the tile before.
  template <int32_t kKeys>
  __device__ __forceinline__ KeyPlace PlaceBefore(const KeyPlace& place) const {
    const int32_t key = place.key - kKeys;
    if (key < place.begin) return FindPlace(key);
    KeyPlace before = place;
    before.key = key;
    before.left += kKeys;
    before.row -= kKeys;
    return before;
  }

 private:
  const KernelParams& params_;
  const int32_t lane_;
  int32_t sequence_ = -1;
  SequenceRecord record_{};
  SegmentRecord segment_{};  // differs between lanes
};

}  // namespace segue::kernels::sm90
