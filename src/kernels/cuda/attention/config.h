// What the parts of the sm90 attention kernel agree on: sizes, shared memory, parameters.
#pragma once

#include <cuda.h>

#include "kernels/attention_schedule.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/mbarrier.h"
#include "kernels/cuda/device/ring.h"

namespace segue::kernels::sm90 {

// The tensor maps of one source. All have dimensions (head_dim, rows, heads) and a box of 64
// elements (128 bytes, one swizzled row) by some rows by one head.
struct SourceMaps {
  CUtensorMap q;        // kHalfQueryTile rows
  CUtensorMap k;        // a whole key tile
  CUtensorMap k_block;  // kKeyBlock rows
  CUtensorMap k_group;  // kKeyGroup rows
  CUtensorMap v;
  CUtensorMap v_block;
  CUtensorMap v_group;
  CUtensorMap v_row;  // one row
};

// Rows of the middle size of box: a tile of two segments takes about seven boxes instead of the
// twenty-two that groups alone would.
inline constexpr int32_t kKeyBlock = 32;

struct Output {
  void* data;           // row r of head h begins at data + 2 (r row_stride + h head_stride) bytes
  int64_t row_stride;   // elements
  int64_t head_stride;  // elements
};

struct KernelParams {
  SourceMaps maps[kMaxSources];
  Output outputs[kMaxSources];
  int32_t kv_rows[kMaxSources];  // of each source's K and V
  ScheduleCapacity capacity;
  int32_t queries_per_key_head;
  const uint8_t* schedule;
  int32_t*
      counters;  // [2]: entries taken beyond the grid's first, CTAs done; zero between launches
  float* lse;    // [q_heads, lse_stride] or null
  int64_t lse_stride;
  float scale_log2;  // softmax scale x log2(e)
};

// The kernel's compile-time choices.
template <class ElementType, bool kIsCausal>
struct Config {
  using Element = ElementType;
  static constexpr bool kCausal = kIsCausal;
  static constexpr int kHeadDim = 128;
  static constexpr int kKeys = KeyTileOf(kIsCausal ? 1 : 0);
  static constexpr int kGroups = kKeys / kKeyGroup;
  static constexpr uint32_t kStages = 2;
  static constexpr int kConsumerWarps = 8;
  static constexpr int kThreads = 128 + 32 * kConsumerWarps;
  // 65,536 registers: 128 x 40 + 256 x 232 = 64,512.
  static constexpr uint32_t kProducerRegisters = 40;
  static constexpr uint32_t kConsumerRegisters = 232;
  static constexpr uint32_t kRowBytes = 128;  // 64 elements: one row of a swizzle atom
  static constexpr uint32_t kQueryHalfBytes = kQueryTile * kRowBytes;
  static constexpr uint32_t kKeyHalfBytes = kKeys * kRowBytes;
  static_assert(kGroups <= 24, "a lane fills each group; three words hold the counts");
};

// A work item as the producer hands it to the consumers.
struct TileWork {
  void* output;        // of the tile's first row and head
  int64_t row_stride;  // bytes
  float* lse;          // of the tile's first row and head, or null
  int32_t rows;        // valid query rows; -1: no more work
  int32_t key_tiles;   // 0: no row sees a key
};

// Valid rows (0..8) of each group of 8 rows of a key tile, four bits a group. The lane that arrives
// at the tile's barrier writes it whole.
struct alignas(16) KeyCounts {
  uint32_t words[3];
  uint32_t masked;  // whether any count is below 8
};

template <class C>
struct SharedMemory {
  // [64-element half of head_dim][row][128 bytes], swizzled.
  alignas(1024) uint8_t q[2][C::kQueryHalfBytes];
  alignas(1024) uint8_t k[C::kStages][2][C::kKeyHalfBytes];
  alignas(1024) uint8_t v[C::kStages][2][C::kKeyHalfBytes];
  // A warp's 16 output rows, half a head at a time.
  alignas(1024) uint8_t o[C::kConsumerWarps][16 * C::kRowBytes];
  TileWork work[2];
  // Causal: how far along the key axis each query row sees.
  int32_t limits[2][C::kCausal ? kQueryTile : 1];
  KeyCounts counts[C::kStages];    // of the key tile in each stage
  uint64_t q_full[2], q_empty[2];  // of each warpgroup's rows
  uint64_t k_full[C::kStages], k_empty[C::kStages];
  uint64_t v_full[C::kStages], v_empty[C::kStages];
  uint64_t work_full[2], work_empty[2];
};

template <class C>
__device__ __forceinline__ void InitBarriers(SharedMemory<C>& shared) {
  for (uint32_t group = 0; group < 2; ++group) {
    device::BarrierInit(&shared.q_full[group], 1);
    device::BarrierInit(&shared.q_empty[group], C::kConsumerWarps / 2);
  }
  for (uint32_t stage = 0; stage < C::kStages; ++stage) {
    device::BarrierInit(&shared.k_full[stage], 1);
    device::BarrierInit(&shared.k_empty[stage], C::kConsumerWarps);
    device::BarrierInit(&shared.v_full[stage], 1);
    device::BarrierInit(&shared.v_empty[stage], C::kConsumerWarps);
  }
  for (uint32_t slot = 0; slot < 2; ++slot) {
    // Written and read by ordinary instructions of all lanes, each of which arrives itself.
    device::BarrierInit(&shared.work_full[slot], 32);
    device::BarrierInit(&shared.work_empty[slot], 32 * C::kConsumerWarps);
  }
  device::FenceBarrierInit();
}

}  // namespace segue::kernels::sm90
