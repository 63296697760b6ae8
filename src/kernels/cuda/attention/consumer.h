// The consumer warpgroups of the sm90 attention kernel: products and softmax of 64 query rows each.
// docs/kernels/attention_sm90.md has the cycle budget.
#pragma once

#include "kernels/cuda/attention/epilogue.h"
#include "kernels/cuda/device/named_barrier.h"
#include "kernels/cuda/device/softmax.h"
#include "kernels/cuda/device/wgmma.h"
#include "kernels/cuda/device/wgmma_operand.h"

namespace segue::kernels::sm90 {

template <class C>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(SharedMemory<C>& shared, float scale_log2)
      : shared_(shared),
        scale_log2_(scale_log2),
        slack_(device::kMaximumSlack / scale_log2),
        lane_(threadIdx.x % 32),
        // Broadcast, so that the compiler knows these to be equal across the warp.
        warp_(__shfl_sync(0xffffffffu, threadIdx.x / 32 - 4, 0)) {
    // The queries of this warpgroup: its 64 rows of each half of head_dim.
    queries_ = device::WgmmaOperand(
        device::SharedAddress(shared_.q[0]) + (warp_ / 4) * 64 * C::kRowBytes, 0);
    keys_ = device::WgmmaOperand(device::SharedAddress(shared_.k[0][0]), 0);
    values_ = device::WgmmaOperand(device::SharedAddress(shared_.v[0][0]), C::kKeyHalfBytes);
  }

  // The first scores of a work item are issued before the last outputs of the one before are
  // stored, so that the tensor cores have work meanwhile.
  __device__ __forceinline__ void Run() {
    if (warp_ / 4 == 1) PassTurn();  // the first turn is warpgroup 0's
    device::BarrierWait(&shared_.work_full[0], 0);
    while (Work().rows >= 0) {
      if (Attends()) {
        AttendItems();
      } else {
        Pass();
      }
    }
    if (warp_ / 4 == 0) TakeTurn();  // meets the pass that nobody takes
  }

 private:
  static constexpr int kScores = C::kKeys / 2;
  static constexpr int kOutputs = C::kHeadDim / 2;
  // Weights before the wait for the product: with the maximum, about as long as it takes.
  static constexpr int kFirstScores = kScores / 8 * 4;
  using ScoreProduct = device::Wgmma<typename C::Element, C::kKeys>;
  using ValueProduct = device::Wgmma<typename C::Element, C::kHeadDim>;

  __device__ __forceinline__ const TileWork& Work() const { return shared_.work[work_.stage]; }
  // This warpgroup's first row of a work item.
  __device__ __forceinline__ int32_t OwnRow() const { return warp_ / 4 * 64; }
  __device__ __forceinline__ bool Attends() const {
    return Work().rows > OwnRow() && Work().key_tiles > 0;
  }
  __device__ __forceinline__ void WaitForNextWork() {
    work_.Advance();
    device::BarrierWait(&shared_.work_full[work_.stage], work_.parity);
  }

  // Work items one after the other as long as this warpgroup has rows in them that see keys.
  __device__ __forceinline__ void AttendItems() {
    float scores[kScores];
    Begin(scores);
    FinishScores<0>(scores, Work().key_tiles - 1, ReadCounts());
    for (;;) {
      device::SoftmaxState state;
      float output[kOutputs];
      uint32_t weights[kScores / 2];
      Attend(scores, weights, state, output);
      device::BarrierWait(&shared_.v_full[v_.stage], v_.parity);
      const TileWork& work = Work();
      uint64_t* empty = &shared_.work_empty[work_.stage];
      WaitForNextWork();
      if (!Attends()) {
        IssueValues(output, weights);
        FinishValues<0>(output);
        StoreOutput<C>(work, shared_.o[warp_], {state, scale_log2_}, output);
        device::BarrierArrive(empty);
        return;
      }
      IssueValues(output, weights);
      Begin(scores);
      FinishValues<1>(output);
      StoreOutput<C>(work, shared_.o[warp_], {state, scale_log2_}, output);
      device::BarrierArrive(empty);
      FinishScores<0>(scores, Work().key_tiles - 1, ReadCounts());
    }
  }

  // A work item without keys, or without rows of this warpgroup.
  __device__ __forceinline__ void Pass() {
    if (Work().rows <= OwnRow()) {
      Skip(Work().key_tiles);
    } else {
      device::SoftmaxState state;
      float output[kOutputs];
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) output[i] = 0.0f;
      StoreOutput<C>(Work(), shared_.o[warp_], {state, scale_log2_}, output);
    }
    uint64_t* empty = &shared_.work_empty[work_.stage];
    WaitForNextWork();
    device::BarrierArrive(empty);
  }

  // A warp is done with a slot: each arrives itself, its own products being what it waited for.
  __device__ __forceinline__ void Release(uint64_t* empty) const {
    __syncwarp();
    if (lane_ == 0) device::BarrierArrive(empty);
  }

  // Barriers 1 and 2: a warpgroup's permission to issue products, given by the other.
  __device__ __forceinline__ void TakeTurn() const { device::NamedBarrierSync(1 + warp_ / 4, 256); }
  __device__ __forceinline__ void PassTurn() const {
    device::NamedBarrierArrive(2 - warp_ / 4, 256);
  }

  // A tile with no rows for this warpgroup: releases what the other computes with.
  __device__ __forceinline__ void Skip(int32_t key_tiles) {
    if (key_tiles == 0) return;
    device::BarrierWait(&shared_.q_full[warp_ / 4], q_.parity);
    q_.Advance();
    Release(&shared_.q_empty[warp_ / 4]);
    for (int32_t tile = 0; tile < key_tiles; ++tile) {
      TakeTurn();
      PassTurn();
      device::BarrierWait(&shared_.k_full[k_.stage], k_.parity);
      Release(&shared_.k_empty[k_.stage]);
      k_.Advance();
      device::BarrierWait(&shared_.v_full[v_.stage], v_.parity);
      Release(&shared_.v_empty[v_.stage]);
      v_.Advance();
    }
  }

  __device__ __forceinline__ void IssueScores(float (&scores)[kScores]) const {
    const uint64_t keys = device::WgmmaAdvance(keys_, k_.stage * 2 * C::kKeyHalfBytes);
    device::WgmmaFence();
#pragma unroll
    for (int i = 0; i < C::kHeadDim / 16; ++i) {
      const uint32_t half = i / 4;
      const uint32_t bytes = i % 4 * 32;  // 16 elements
      ScoreProduct::Shared(scores,
                           device::WgmmaAdvance(queries_, half * C::kQueryHalfBytes + bytes),
                           device::WgmmaAdvance(keys, half * C::kKeyHalfBytes + bytes), i > 0);
    }
    device::WgmmaCommit();
  }

  __device__ __forceinline__ void IssueValues(float (&output)[kOutputs],
                                              const uint32_t (&weights)[kScores / 2]) const {
    const uint64_t values = device::WgmmaAdvance(values_, v_.stage * 2 * C::kKeyHalfBytes);
    device::WgmmaFence();
#pragma unroll
    for (int i = 0; i < C::kKeys / 16; ++i) {
      ValueProduct::Registers(output, weights + 4 * i,
                              device::WgmmaAdvance(values, i * 16 * C::kRowBytes));
    }
    device::WgmmaCommit();
  }

  // Scores of rows that do not exist, or that come too late for the query, become -inf by select,
  // whatever they are.
  // `counts` is the tile's in lane 0.
  __device__ __forceinline__ void Mask(float (&scores)[kScores], int32_t tile, bool masked,
                                       const KeyCounts& counts) const {
    const int32_t column = 2 * (lane_ % 4);
    if (masked) {
      uint32_t words[3];
#pragma unroll
      for (int w = 0; w < 3; ++w) words[w] = __shfl_sync(0xffffffffu, counts.words[w], 0);
#pragma unroll
      for (int j = 0; j < C::kGroups; ++j) {
        const auto count = static_cast<int32_t>(words[j / 8] >> (4 * (j % 8)) & 0xf);
        Select(scores, j, column < count, column + 1 < count, 0);
        Select(scores, j, column < count, column + 1 < count, 1);
      }
    }
    if constexpr (C::kCausal) {
      const int32_t* limits = shared_.limits[work_.stage] + 64 * (warp_ / 4);
      const int32_t begin = tile * C::kKeys;
      if (begin + C::kKeys <= limits[0]) return;  // limits rise with the row
      const int32_t* own = limits + 16 * (warp_ % 4) + lane_ / 4;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t limit = own[8 * r] - begin - column;
#pragma unroll
        for (int j = 0; j < C::kGroups; ++j) {
          Select(scores, j, 8 * j < limit, 8 * j + 1 < limit, r);
        }
      }
    }
  }
  __device__ __forceinline__ static void Select(float (&scores)[kScores], int j, bool even,
                                                bool odd, int r) {
    scores[4 * j + 2 * r] = even ? scores[4 * j + 2 * r] : device::kNegativeInfinity;
    scores[4 * j + 2 * r + 1] = odd ? scores[4 * j + 2 * r + 1] : device::kNegativeInfinity;
  }

  // Issues the scores of a work item's first tile.
  __device__ __forceinline__ void Begin(float (&scores)[kScores]) {
    device::BarrierWait(&shared_.q_full[warp_ / 4], q_.parity);
    q_.Advance();
    device::BarrierWait(&shared_.k_full[k_.stage], k_.parity);
    TakeTurn();
    IssueScores(scores);
    PassTurn();
  }

  // Key tiles from the last to the first. The scores of a tile are in flight together with the
  // values of the tile after it, whose weights are ready. Begins with the scores of the last tile
  // and ends with the weights of the first.
  __device__ __forceinline__ void Attend(float (&scores)[kScores], uint32_t (&weights)[kScores / 2],
                                         device::SoftmaxState& state, float (&output)[kOutputs]) {
    device::SoftmaxStep step;
    device::SoftmaxMaximum(scores, scale_log2_, slack_, state, step);
    device::SoftmaxWeights<0, kScores>(scores, scale_log2_, step);
    device::SoftmaxFinish(step, state);
    device::PackWeights<typename C::Element>(scores, weights);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) output[i] = 0.0f;
    for (int32_t tile = Work().key_tiles - 2; tile >= 0; --tile) {
      device::BarrierWait(&shared_.k_full[k_.stage], k_.parity);
      TakeTurn();
      IssueScores(scores);
      const TileCounts counts = ReadCounts();
      device::BarrierWait(&shared_.v_full[v_.stage], v_.parity);
      IssueValues(output, weights);
      PassTurn();
      FinishScores<1>(scores, tile, counts);
      device::SoftmaxMaximum(scores, scale_log2_, slack_, state, step);
      // The product ends under the first weights; packing, which must not begin before its end,
      // then lies under the exponentials of the others.
      device::SoftmaxWeights<0, kFirstScores>(scores, scale_log2_, step);
      device::FenceRegisters(scores);
      EndValues(step, output);
      device::FenceRegisters(scores);
      Release(&shared_.v_empty[v_.stage]);
      v_.Advance();
      device::SoftmaxWeights<kFirstScores, kScores>(scores, scale_log2_, step);
      device::SoftmaxFinish(step, state);
      device::PackWeights<typename C::Element>(scores, weights);
    }
  }

  // Waits for the product of values and rescales what it was added to.
  // The barrier passed long ago, before the product was issued, and its parity is the same whatever
  // the sums are, which are never negative. But a wait is a branch, and one that reads the sums:
  // without it ptxas moves the wait for the product above the exponentials, and the sums below it,
  // where nothing would hide them. It is the same instruction for all warps of the warpgroup, as
  // wgmma wants it; the vote, a warp's own, decides about multiplications alone, and rows whose
  // factor is 1 keep their bits either way.
  __device__ __forceinline__ void EndValues(const device::SoftmaxStep& step,
                                            float (&output)[kOutputs]) const {
    const bool negative = step.sum[0][0] < 0.0f || step.sum[0][1] < 0.0f || step.sum[1][0] < 0.0f ||
                          step.sum[1][1] < 0.0f;
    device::BarrierWait(&shared_.v_full[v_.stage], v_.parity ^ (negative ? 1u : 0u));
    device::WgmmaWait<0>();
    device::FenceRegisters(output);
    if (__any_sync(0xffffffffu, step.rescale[0] != 1.0f || step.rescale[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) output[i] *= step.rescale[i / 2 % 2];
    }
  }

  // The end of Attend's last product.
  template <int kUnfinished>
  __device__ __forceinline__ void FinishValues(float (&output)[kOutputs]) {
    device::WgmmaWait<kUnfinished>();
    device::FenceRegisters(output);
    Release(&shared_.v_empty[v_.stage]);
    v_.Advance();
  }

  struct TileCounts {
    KeyCounts counts;  // in lane 0
    bool masked;
  };
  // Of the key tile in the present stage. Lane 0 reads for the warp: it is the one that arrives at
  // the slot's barrier afterwards.
  __device__ __forceinline__ TileCounts ReadCounts() const {
    TileCounts tile{};
    if (lane_ == 0) tile.counts = shared_.counts[k_.stage];
    tile.masked = __shfl_sync(0xffffffffu, tile.counts.masked, 0) != 0;
    return tile;
  }

  template <int kUnfinished>
  __device__ __forceinline__ void FinishScores(float (&scores)[kScores], int32_t tile,
                                               const TileCounts& counts) {
    device::WgmmaWait<kUnfinished>();
    device::FenceRegisters(scores);
    Mask(scores, tile, counts.masked, counts.counts);
    Release(&shared_.k_empty[k_.stage]);
    if (tile == 0) Release(&shared_.q_empty[warp_ / 4]);
    k_.Advance();
  }

  SharedMemory<C>& shared_;
  const float scale_log2_;
  const float slack_;
  const int32_t lane_;
  const int32_t warp_;  // 0..7
  uint64_t queries_;
  uint64_t keys_;
  uint64_t values_;
  device::RingPosition<1> q_;
  device::RingPosition<C::kStages> k_;
  device::RingPosition<C::kStages> v_;
  device::RingPosition<2> work_;
};

}  // namespace segue::kernels::sm90
