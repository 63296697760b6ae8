// The producer warp of the sm90 attention kernel: takes work and fills shared memory.
#pragma once

#include "kernels/cuda/attention/config.h"
#include "kernels/cuda/attention/sequence_walk.h"
#include "kernels/cuda/device/planted_defect.h"
#include "kernels/cuda/device/tma.h"

namespace segue::kernels::sm90 {

// A coordinate outside every tensor: such rows arrive as zeros.
inline constexpr int32_t kOutside = 1 << 30;

// One warp executes all members together; members that differ between lanes say so.
template <class C>
class Producer {
 public:
  __device__ __forceinline__ Producer(const KernelParams& params, SharedMemory<C>& shared)
      : params_(params), shared_(shared), lane_(threadIdx.x % 32), sequence_(params) {
    header_ = *reinterpret_cast<const ScheduleHeader*>(params.schedule);
  }

  __device__ __forceinline__ void Run() {
    int32_t index = blockIdx.x;
    WorkItem item = Work(index);
    while (index < header_.work) {
      // Early: the counter's answer and the item after it come while this one is filled.
      index = Next(index);
      const WorkItem after = Work(index);
      if (item.head_and_rows % 256 != 0) Tile(item);
      item = after;
    }
    device::BarrierWait(&shared_.work_empty[work_.stage], work_.parity ^ 1);
    if (lane_ == 0) shared_.work[work_.stage].rows = -1;
    device::BarrierArrive(&shared_.work_full[work_.stage]);
    ReturnCounters();
  }

 private:
  __device__ __forceinline__ WorkItem Work(int32_t index) const {
    if (index >= header_.work) return {-1, 0, 0, 0};
    const auto* work =
        reinterpret_cast<const int4*>(params_.schedule + WorkOffset(params_.capacity));
    const int4 item = __ldg(work + index);
    if constexpr (device::kPlantsDefects) return WithDefect(item, work + header_.work);
    return {item.x, item.y, item.z, item.w};
  }

  // In the build that shows what the sanitizer's tools find.
  __device__ __forceinline__ WorkItem WithDefect(int4 item, const int4* after_last) const {
    using device::Defect;
    if (device::Planted(Defect::kOutOfBounds)) ++item.w;  // a row too many
    // The slot that the item will use, before its consumers are done with it.
    if (device::Planted(Defect::kRace) && lane_ == 0) shared_.work[work_.stage].rows = 0;
    if (device::Planted(Defect::kUnwritten)) {
      item.w += reinterpret_cast<const volatile int32_t*>(after_last)[3] == 1 ? 1 : 0;
    }
    if (device::Planted(Defect::kWarpBarrier)) device::MisuseWarpBarrier();
    return {item.x, item.y, item.z, item.w};
  }

  __device__ __forceinline__ int32_t Next(int32_t index) {
    const int32_t grid = static_cast<int32_t>(gridDim.x);
    if (header_.dynamic == 0) return index + grid;
    if (index >= header_.work) return index;
    int32_t taken = 0;
    if (lane_ == 0) taken = atomicAdd(&params_.counters[0], 1);
    return grid + __shfl_sync(kAllLanes, taken, 0);
  }

  // The last CTA to finish leaves the counters as the next launch needs them.
  __device__ __forceinline__ void ReturnCounters() const {
    if (device::Planted(device::Defect::kBlockBarrier)) device::MisuseBlockBarrier();
    if (header_.dynamic == 0 || lane_ != 0) return;
    __threadfence();
    if (atomicAdd(&params_.counters[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
      params_.counters[0] = 0;
      params_.counters[1] = 0;
    }
  }

  __device__ __forceinline__ void Tile(const WorkItem& item) {
    sequence_.Read(item.sequence);
    const int32_t head = item.head_and_rows / 256;
    kv_head_ = head / params_.queries_per_key_head;
    const int32_t key_tiles = HandOver(item, head);
    if (key_tiles == 0) return;
    KeyPlace place = sequence_.FindPlace((key_tiles - 1) * C::kKeys);
    LoadKeys(place);
    LoadQueries(item, head);
#pragma unroll 1
    for (int32_t tile = key_tiles - 2; tile >= 0; --tile) {
      const KeyPlace values = place;
      place = sequence_.template PlaceBefore<C::kKeys>(place);
      LoadKeys(place);
      LoadValues(values);
    }
    LoadValues(place);
  }

  // Tells the consumers about the tile; returns the number of key tiles.
  __device__ __forceinline__ int32_t HandOver(const WorkItem& item, int32_t head) {
    const int32_t rows = item.head_and_rows % 256;
    const int32_t q_position =
        __shfl_sync(kAllLanes, sequence_.segment().q_position, item.segment) + item.row;
    const int32_t q_begin =
        __shfl_sync(kAllLanes, sequence_.segment().q_begin, item.segment) + item.row;
    const int32_t source = __shfl_sync(kAllLanes, sequence_.segment().source, item.segment);
    device::BarrierWait(&shared_.work_empty[work_.stage], work_.parity ^ 1);
    int32_t key_extent = sequence_.record().key_extent;
    if constexpr (C::kCausal) key_extent = WriteLimits(q_position, rows);
    const int32_t key_tiles = DivideUp(key_extent, C::kKeys);
    if (lane_ == 0) {
      const Output& output = params_.outputs[source];
      TileWork& work = shared_.work[work_.stage];
      work.output = static_cast<uint8_t*>(output.data) +
                    2 * (q_begin * output.row_stride + head * output.head_stride);
      work.row_stride = 2 * output.row_stride;
      work.lse = params_.lse == nullptr ? nullptr
                                        : params_.lse + head * params_.lse_stride +
                                              (int64_t{sequence_.record().lse_begin} + q_position);
      work.rows = rows;
      work.key_tiles = key_tiles;
    }
    device::BarrierArrive(&shared_.work_full[work_.stage]);
    work_.Advance();
    return key_tiles;
  }

  // Causal: row i of the tile sees the first kv_rows - q_rows + 1 + q_position + i key rows.
  // Returns the limit of the last valid row, the largest.
  __device__ __forceinline__ int32_t WriteLimits(int32_t q_position, int32_t rows) {
    int32_t last = 0;
    for (int32_t i = lane_; i < kQueryTile; i += 32) {
      const int32_t count =
          sequence_.record().kv_rows - sequence_.record().q_rows + 1 + q_position + i;
      int32_t limit = 0;
      for (int32_t s = 0; s < params_.capacity.segments; ++s) {
        limit = KeyLimit(sequence_.SegmentOf(s), count, limit);
      }
      shared_.limits[work_.stage][i] = limit;
      if (i == rows - 1) last = limit;
    }
    return __reduce_max_sync(kAllLanes, last);
  }

  // `count`: of this lane's group. Three exchanges cost less than what nvcc 13.0 makes of the same
  // words in uniform arithmetic, which is also wrong (docs/kernels/attention_sm90.md, "Tried").
  __device__ __forceinline__ KeyCounts CountsOf(int32_t count) const {
    const uint32_t own = lane_ < C::kGroups ? static_cast<uint32_t>(count) << (4 * (lane_ % 8)) : 0;
    KeyCounts counts;
    for (int32_t word = 0; word < 3; ++word) {
      counts.words[word] = __reduce_or_sync(kAllLanes, lane_ / 8 == word ? own : 0);
    }
    counts.masked = 1;
    return counts;
  }
  __device__ __forceinline__ void LoadKeys(const KeyPlace& place) {
    // One box where no other segment follows: rows past the segment are whatever is there, and
    // their scores become -inf.
    const bool whole = place.left >= C::kKeys || place.last;
    KeyCounts counts{};
    if (place.left < C::kKeys) counts = CountsOf(CountInTile(place));
    uint64_t* full = &shared_.k_full[k_.stage];
    const uint32_t to = device::SharedAddress(shared_.k[k_.stage][0]);
    device::BarrierWait(&shared_.k_empty[k_.stage], k_.parity ^ 1);
    if (lane_ == 0) {
      shared_.counts[k_.stage] = counts;
      device::BarrierArriveExpect(full, 2 * C::kKeyHalfBytes);
      if (whole) LoadHalves(to, &params_.maps[place.source].k, full, place.row);
    }
    __syncwarp();
    if (!whole) LoadPieces<false>(place, to, full);
    k_.Advance();
  }

  __device__ __forceinline__ void LoadValues(const KeyPlace& place) {
    // One box where the rows past the segment do not exist either: they arrive as zeros.
    const bool whole = place.left >= C::kKeys || (place.last && place.ends);
    uint64_t* full = &shared_.v_full[v_.stage];
    const uint32_t to = device::SharedAddress(shared_.v[v_.stage][0]);
    device::BarrierWait(&shared_.v_empty[v_.stage], v_.parity ^ 1);
    if (lane_ == 0) {
      device::BarrierArriveExpect(full, 2 * C::kKeyHalfBytes);
      if (whole) LoadHalves(to, &params_.maps[place.source].v, full, place.row);
    }
    __syncwarp();
    if (!whole) LoadPieces<true>(place, to, full);
    v_.Advance();
  }

  // Valid rows of this lane's group in the tile that begins at `place`.
  __device__ __forceinline__ int32_t CountInTile(KeyPlace place) const {
    const int32_t tile = place.key;
    int32_t count = 0;
#pragma unroll 1
    for (;;) {
      const int32_t begin = place.key - tile;
      const int32_t rows = min(place.left, C::kKeys - begin);
      if (lane_ * kKeyGroup >= begin) {
        count = max(0, min(begin + rows - lane_ * kKeyGroup, kKeyGroup));
      }
      const int32_t end = begin + DivideUp(rows, kKeyGroup) * kKeyGroup;
      if (place.last || end >= C::kKeys) return count;
      place = sequence_.FindPlace(tile + end);
    }
  }

  // A tile that several segments meet in, or whose last rows do not exist: segment by segment, the
  // rest as zeros.
  template <bool kValues>
  __device__ __forceinline__ void LoadPieces(KeyPlace place, uint32_t to, uint64_t* full) const {
    const int32_t tile = place.key;
#pragma unroll 1
    for (;;) {
      const int32_t begin = place.key - tile;
      const int32_t rows = min(place.left, C::kKeys - begin);
      const int32_t end = begin + DivideUp(rows, kKeyGroup) * kKeyGroup;
      if (lane_ == 0) LoadRun<kValues>(place, rows, to + begin * C::kRowBytes, full);
      const bool done = place.last || end >= C::kKeys;
      if (done) {
        if (lane_ == 0)
          LoadZeros<kValues>(place.source, C::kKeys - end, to + end * C::kRowBytes, full);
        __syncwarp();
        return;
      }
      __syncwarp();
      place = sequence_.FindPlace(tile + end);
    }
  }

  // Lane 0: `rows` rows from `place` on. Of V, those that complete the last group are zeros.
  template <bool kValues>
  __device__ __forceinline__ void LoadRun(const KeyPlace& place, int32_t rows, uint32_t to,
                                          uint64_t* full) const {
    const SourceMaps& maps = params_.maps[place.source];
    const CUtensorMap* block = kValues ? &maps.v_block : &maps.k_block;
    const CUtensorMap* group = kValues ? &maps.v_group : &maps.k_group;
    int32_t row = 0;
#pragma unroll 1
    for (; rows - row >= kKeyBlock; row += kKeyBlock) {
      LoadHalves(to + row * C::kRowBytes, block, full, place.row + row);
    }
#pragma unroll 1
    for (; rows - row >= (kValues ? kKeyGroup : 1); row += kKeyGroup) {
      LoadHalves(to + row * C::kRowBytes, group, full, place.row + row);
    }
    if (!kValues || row >= rows) return;
    const int32_t end = row + kKeyGroup;
#pragma unroll 1
    for (; row < end; ++row) {
      LoadHalves(to + row * C::kRowBytes, &maps.v_row, full,
                 row < rows ? place.row + row : kOutside);
    }
  }

  // Lane 0: `rows` rows that do not exist, a multiple of the group.
  template <bool kValues>
  __device__ __forceinline__ void LoadZeros(int32_t source, int32_t rows, uint32_t to,
                                            uint64_t* full) const {
    const SourceMaps& maps = params_.maps[source];
    int32_t row = 0;
#pragma unroll 1
    for (; rows - row >= kKeyBlock; row += kKeyBlock) {
      LoadHalves(to + row * C::kRowBytes, kValues ? &maps.v_block : &maps.k_block, full, kOutside);
    }
#pragma unroll 1
    for (; row < rows; row += kKeyGroup) {
      LoadHalves(to + row * C::kRowBytes, kValues ? &maps.v_group : &maps.k_group, full, kOutside);
    }
  }

  // Both halves of head_dim of a box of K or V.
  __device__ __forceinline__ void LoadHalves(uint32_t to, const CUtensorMap* map, uint64_t* full,
                                             int32_t row) const {
    device::LoadBox(to, map, full, {0, row, kv_head_}, device::kEvictLast);
    device::LoadBox(to + C::kKeyHalfBytes, map, full, {64, row, kv_head_}, device::kEvictLast);
  }

  __device__ __forceinline__ void LoadQueries(const WorkItem& item, int32_t head) {
    const int32_t row =
        __shfl_sync(kAllLanes, sequence_.segment().q_begin, item.segment) + item.row;
    const int32_t source = __shfl_sync(kAllLanes, sequence_.segment().source, item.segment);
    const CUtensorMap* map = &params_.maps[source].q;
    // Each warpgroup's rows as soon as it has issued its last scores: the first need not wait for
    // the second.
#pragma unroll 1
    for (int32_t group = 0; group < 2; ++group) {
      uint64_t* full = &shared_.q_full[group];
      device::BarrierWait(&shared_.q_empty[group], q_.parity ^ 1);
      if (lane_ == 0) {
        const int32_t from = row + group * kHalfQueryTile;
        const uint32_t to =
            device::SharedAddress(shared_.q[0]) + group * kHalfQueryTile * C::kRowBytes;
        device::BarrierArriveExpect(full, C::kQueryHalfBytes);
        device::LoadBox(to, map, full, {0, from, head}, device::kEvictFirst);
        device::LoadBox(to + C::kQueryHalfBytes, map, full, {64, from, head}, device::kEvictFirst);
      }
      __syncwarp();
    }
    q_.Advance();
  }

  const KernelParams& params_;
  SharedMemory<C>& shared_;
  const int32_t lane_;
  ScheduleHeader header_;
  SequenceWalk<C::kCausal> sequence_;
  int32_t kv_head_ = 0;
  device::RingPosition<1> q_;
  device::RingPosition<C::kStages> k_;
  device::RingPosition<C::kStages> v_;
  device::RingPosition<2> work_;
};

}  // namespace segue::kernels::sm90
