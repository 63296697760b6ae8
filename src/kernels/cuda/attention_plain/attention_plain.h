// The plain attention kernel: mma.sync and cp.async, no roles, nothing newer than compute
// capability 8.0.
//
// A CTA of four warps takes 64 query rows of one head, sixteen a warp, and walks the sequence's
// keys in tiles, always from the first, in the order of its segments: while one tile of K and V is
// multiplied the next is on its way. docs/kernels/attention_cuda.md.
#pragma once

#include "kernels/attention_cuda.h"
#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/softmax.h"

namespace segue::kernels::plain {

inline constexpr int32_t kThreads = 128;
inline constexpr int32_t kQueryRows = AttentionCudaTiling{}.query_rows;
static_assert(kQueryRows == kThreads / 32 * 16 && kQueryTile == 2 * kQueryRows,
              "an mma's rows for each warp, two tiles for an entry of the schedule");

struct KernelParams {
  attention::TensorSet sources[kMaxSources];
  const uint8_t* schedule;
  ScheduleCapacity capacity;
  float* lse;
  int64_t lse_stride;
  int32_t head_dim;
  int32_t queries_per_key_head;
  int32_t causal;
  int32_t aligned;  // every pointer and stride is a multiple of 16 bytes
  float scale_log2;
};

template <class Element_, int kHeadDim>
struct Config {
  using Element = Element_;
  static constexpr AttentionCudaTiling kTiling = AttentionCudaTilingOf(kHeadDim);
  static constexpr int kColumns = kTiling.columns;
  static constexpr int kChunks = kColumns / 8;  // of 16 bytes in a row
  static constexpr int kKeys = kTiling.key_rows;
  // 16 bytes between rows put the same columns of eight rows into different banks.
  static constexpr int kPitch = kColumns + 8;
};

template <class C>
struct alignas(16) SharedMemory {
  struct Stage {
    uint16_t k[C::kKeys][C::kPitch];
    uint16_t v[C::kKeys][C::kPitch];
  };
  // Where a key row lies; null past the last.
  struct KeyRow {
    const uint16_t* k;
    const uint16_t* v;
  };
  Stage stages[2];
  uint16_t q[kQueryRows][C::kPitch];
  KeyRow rows[2][C::kKeys];
};

// One tile of query rows.
struct Tile {
  SequenceRecord sequence;
  const SegmentRecord* segments;  // of the sequence
  SegmentRecord own;              // that the rows belong to
  int32_t head;
  int32_t row;   // first row within the segment
  int32_t rows;  // 0 or fewer: nothing to do
};

__device__ __forceinline__ Tile FindTile(const KernelParams& params, int64_t index) {
  const uint8_t* schedule = params.schedule;
  const WorkItem item =
      reinterpret_cast<const WorkItem*>(schedule + WorkOffset(params.capacity))[index / 2];
  const auto first = static_cast<int32_t>(index % 2) * kQueryRows;
  Tile tile;
  tile.sequence =
      reinterpret_cast<const SequenceRecord*>(schedule + SequencesOffset())[item.sequence];
  tile.segments =
      reinterpret_cast<const SegmentRecord*>(schedule + SegmentsOffset(params.capacity)) +
      int64_t{item.sequence} * params.capacity.segments;
  tile.own = tile.segments[item.segment];
  tile.head = item.head_and_rows / 256;
  tile.row = item.row + first;
  tile.rows = min(item.head_and_rows % 256 - first, kQueryRows);
  return tile;
}

// Keys that row `row` of the tile sees: the first so many.
__device__ __forceinline__ int32_t SeenKeys(const KernelParams& params, const Tile& tile,
                                            int32_t row) {
  const int32_t keys = tile.sequence.kv_rows;
  if (params.causal == 0) return keys;
  const int32_t position = tile.own.q_position + tile.row + row;
  return min(max(keys - tile.sequence.q_rows + 1 + position, 0), keys);
}

// 8 elements to shared memory; zeros where there are none.
__device__ __forceinline__ void CopyChunk(uint16_t* to, const uint16_t* from, bool aligned) {
  if (from == nullptr) {
    *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
  } else if (aligned) {
    device::CopyAsync(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = from[i];
  }
}

template <class C>
__device__ __forceinline__ void LoadQueries(const KernelParams& params, const Tile& tile,
                                            SharedMemory<C>& shared) {
  const attention::RowsView& q = params.sources[tile.own.source].q;
  const uint16_t* rows = static_cast<const uint16_t*>(q.data) + tile.head * q.head_stride +
                         (int64_t{tile.own.q_begin} + tile.row) * q.row_stride;
  for (int i = threadIdx.x; i < kQueryRows * C::kChunks; i += kThreads) {
    const int row = i / C::kChunks;
    const int column = i % C::kChunks * 8;
    const bool there = row < tile.rows && column < params.head_dim;
    CopyChunk(&shared.q[row][column], there ? rows + row * q.row_stride + column : nullptr,
              params.aligned != 0);
  }
}

// The way of K and V into shared memory.
template <class C>
class KeyLoader {
 public:
  // `keys`: that any row of the tile sees.
  __device__ KeyLoader(const KernelParams& params, const Tile& tile, int32_t keys,
                       SharedMemory<C>& shared)
      : params_(params),
        segments_(tile.segments),
        shared_(shared),
        keys_(keys),
        head_(tile.head / params.queries_per_key_head) {}

  // Finds the rows of key tile `index`, for Load after the next barrier. Called in rising order.
  __device__ void Find(int32_t index) {
    if (threadIdx.x >= C::kKeys) return;
    const int32_t key = index * C::kKeys + static_cast<int32_t>(threadIdx.x);
    typename SharedMemory<C>::KeyRow found = {nullptr, nullptr};
    if (key < keys_) {
      while (key >= segments_[segment_].kv_position + segments_[segment_].kv_rows) ++segment_;
      const SegmentRecord& segment = segments_[segment_];
      const attention::TensorSet& source = params_.sources[segment.source];
      const int64_t row = int64_t{segment.kv_begin} + key - segment.kv_position;
      found = {Row(source.k, row), Row(source.v, row)};
    }
    shared_.rows[index % 2][threadIdx.x] = found;
  }

  // Starts the copies of key tile `index`.
  __device__ void Load(int32_t index) {
    typename SharedMemory<C>::Stage& stage = shared_.stages[index % 2];
    for (int i = threadIdx.x; i < C::kKeys * C::kChunks; i += kThreads) {
      const int row = i / C::kChunks;
      const int column = i % C::kChunks * 8;
      const typename SharedMemory<C>::KeyRow from = shared_.rows[index % 2][row];
      const bool there = from.k != nullptr && column < params_.head_dim;
      CopyChunk(&stage.k[row][column], there ? from.k + column : nullptr, params_.aligned != 0);
      CopyChunk(&stage.v[row][column], there ? from.v + column : nullptr, params_.aligned != 0);
    }
  }

 private:
  __device__ const uint16_t* Row(const attention::RowsView& view, int64_t row) const {
    return static_cast<const uint16_t*>(view.data) + row * view.row_stride +
           head_ * view.head_stride;
  }

  const KernelParams& params_;
  const SegmentRecord* segments_;
  SharedMemory<C>& shared_;
  int32_t keys_;
  int32_t head_;
  int32_t segment_ = 0;  // of this thread's last key
};

// scores = q k^T of the warp's 16 rows and a tile's keys.
template <class C>
__device__ __forceinline__ void Score(const uint16_t (*q)[C::kPitch],
                                      const uint16_t (*k)[C::kPitch],
                                      float (&scores)[C::kKeys / 2]) {
  const int32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < C::kKeys / 2; ++i) scores[i] = 0.0f;
#pragma unroll
  for (int column = 0; column < C::kColumns; column += 16) {
    uint32_t a[4];
    device::LoadMatrices(&q[lane % 16][column + lane / 16 * 8], a);
#pragma unroll
    for (int key = 0; key < C::kKeys; key += 16) {
      uint32_t b[4];  // keys 0..7, then 8..15, each columns 0..7 and 8..15
      device::LoadMatrices(&k[key + lane % 8 + lane / 16 * 8][column + lane / 8 % 2 * 8], b);
      device::MultiplyAdd<typename C::Element>(&scores[key / 2], a, b[0], b[1]);
      device::MultiplyAdd<typename C::Element>(&scores[key / 2 + 4], a, b[2], b[3]);
    }
  }
}

// outputs += weights v.
template <class C>
__device__ __forceinline__ void AddValues(const float (&weights)[C::kKeys / 2],
                                          const uint16_t (*v)[C::kPitch],
                                          float (&outputs)[C::kColumns / 2]) {
  const int32_t lane = threadIdx.x % 32;
  uint32_t packed[C::kKeys / 4];
  device::PackWeights<typename C::Element>(weights, packed);
#pragma unroll
  for (int key = 0; key < C::kKeys; key += 16) {
    const uint32_t a[4] = {packed[key / 4], packed[key / 4 + 1], packed[key / 4 + 2],
                           packed[key / 4 + 3]};
#pragma unroll
    for (int column = 0; column < C::kColumns; column += 16) {
      uint32_t b[4];  // columns 0..7, then 8..15, each keys 0..7 and 8..15
      device::LoadTransposed(&v[key + lane % 16][column + lane / 16 * 8], b);
      device::MultiplyAdd<typename C::Element>(&outputs[column / 2], a, b[0], b[1]);
      device::MultiplyAdd<typename C::Element>(&outputs[column / 2 + 4], a, b[2], b[3]);
    }
  }
}

// Divides by the sums and writes the warp's rows and their log-sum-exp.
template <class C>
__device__ __forceinline__ void Store(const KernelParams& params, const Tile& tile,
                                      const device::SoftmaxState& state,
                                      const float (&outputs)[C::kColumns / 2]) {
  const int32_t lane = threadIdx.x % 32;
  const attention::RowsView& o = params.sources[tile.own.source].o;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = device::QuadSum(state.sum[r]);
    const int32_t row = static_cast<int32_t>(threadIdx.x) / 32 * 16 + lane / 4 + 8 * r;
    if (row >= tile.rows) continue;
    const bool sees = sum != 0.0f;
    if (params.lse != nullptr && lane % 4 == 0) {
      constexpr float kLn2 = 0.693147180559945f;
      const float log2_sum = fmaf(state.maximum[r], params.scale_log2, device::Log2(sum));
      params.lse[tile.head * params.lse_stride + tile.sequence.lse_begin + tile.own.q_position +
                 tile.row + row] = sees ? log2_sum * kLn2 : device::kNegativeInfinity;
    }
    const float inverse = 1.0f / sum;
    uint16_t* to = static_cast<uint16_t*>(o.data) + tile.head * o.head_stride +
                   (int64_t{tile.own.q_begin} + tile.row + row) * o.row_stride + 2 * (lane % 4);
#pragma unroll
    for (int column = 0; column < C::kColumns; column += 8) {
      if (column >= params.head_dim) break;
      const float* pair = &outputs[column / 2 + 2 * r];
      // What weights of zero made of a NaN among the values goes, too.
      const uint32_t packed =
          C::Element::Pack(sees ? pair[0] * inverse : 0.0f, sees ? pair[1] * inverse : 0.0f);
      if (params.aligned != 0) {
        *reinterpret_cast<uint32_t*>(to + column) = packed;
      } else {
        to[column] = static_cast<uint16_t>(packed);
        to[column + 1] = static_cast<uint16_t>(packed >> 16);
      }
    }
  }
}

// Scores of keys that a row does not see become -infinity.
template <class C>
__device__ __forceinline__ void Mask(int32_t first_key, const int32_t (&seen)[2],
                                     float (&scores)[C::kKeys / 2]) {
  const int32_t key = first_key + 2 * static_cast<int32_t>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < C::kKeys / 2; ++i) {
    if (key + i / 4 * 8 + i % 2 >= seen[i / 2 % 2]) scores[i] = device::kNegativeInfinity;
  }
}

template <class C>
__device__ __forceinline__ void Attend(const KernelParams& params, const Tile& tile,
                                       SharedMemory<C>& shared) {
  const auto warp_row = static_cast<int32_t>(threadIdx.x) / 32 * 16;
  const int32_t row = warp_row + static_cast<int32_t>(threadIdx.x) % 32 / 4;
  const int32_t seen[2] = {SeenKeys(params, tile, row), SeenKeys(params, tile, row + 8)};
  const int32_t all_see = SeenKeys(params, tile, warp_row);  // its first row sees the fewest
  const int32_t keys = SeenKeys(params, tile, tile.rows - 1);
  const int32_t tiles = DivideUp(keys, C::kKeys);
  const float slack = device::kMaximumSlack / params.scale_log2;
  KeyLoader<C> loader(params, tile, keys, shared);
  float outputs[C::kColumns / 2] = {};
  device::SoftmaxState state;

  __syncthreads();  // nobody reads what the last tile left
  loader.Find(0);
  LoadQueries(params, tile, shared);
  __syncthreads();
  loader.Load(0);
  loader.Find(1);
  for (int32_t i = 0; i < tiles; ++i) {
    device::WaitForCopies();
    __syncthreads();  // tile i is there, tile i - 1 done with, the rows of tile i + 1 are known
    if (i + 1 < tiles) loader.Load(i + 1);
    loader.Find(i + 2);
    const typename SharedMemory<C>::Stage& stage = shared.stages[i % 2];
    float scores[C::kKeys / 2];
    Score<C>(&shared.q[warp_row], stage.k, scores);
    if ((i + 1) * C::kKeys > all_see) Mask<C>(i * C::kKeys, seen, scores);
    device::SoftmaxStep step;
    device::SoftmaxMaximum(scores, params.scale_log2, slack, state, step);
    device::SoftmaxWeights<0, C::kKeys / 2>(scores, params.scale_log2, step);
    device::SoftmaxFinish(step, state);
#pragma unroll
    for (int j = 0; j < C::kColumns / 2; ++j) outputs[j] *= step.rescale[j / 2 % 2];
    AddValues<C>(scores, stage.v, outputs);
  }
  device::WaitForCopies();  // of a tile without keys
  Store<C>(params, tile, state, outputs);
}

// Dynamic shared memory: sizeof(SharedMemory<C>).
template <class C>
__global__ void __launch_bounds__(kThreads, C::kTiling.ctas_a_multiprocessor)
    AttentionKernel(const __grid_constant__ KernelParams params) {
  extern __shared__ __align__(16) uint8_t bytes[];
  SharedMemory<C>& shared = *reinterpret_cast<SharedMemory<C>*>(bytes);
  const auto* header = reinterpret_cast<const ScheduleHeader*>(params.schedule);
  const int64_t tiles = 2 * int64_t{header->work};
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const Tile tile = FindTile(params, i);
    if (tile.rows > 0) Attend<C>(params, tile, shared);
  }
}

}  // namespace segue::kernels::plain
