// Tensors in the forms that adapters take, and the check of what they make of them.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "attention/naive.h"
#include "segue/attention_adapters.h"

namespace segue::attention {

// A float32 tensor of any strides inside a buffer; `offset` is where it begins.
struct Tensor {
  std::vector<float>* buffer = nullptr;
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  int64_t batch_stride = 0;

  RowsView View() const { return {buffer->data() + offset, row_stride, head_stride}; }
  DenseView Dense() const { return {View(), batch_stride}; }
  NaiveRow Row(int64_t row, int64_t batch = 0) const {
    return {buffer->data() + offset + batch * batch_stride + row * row_stride, head_stride};
  }
};

struct Qkvo {
  Tensor q, k, v, o;

  void AddQuery(NaiveSequence& sequence, int64_t row, int64_t batch = 0) const {
    sequence.q.push_back(q.Row(row, batch));
    sequence.o.push_back(o.Row(row, batch));
  }
  void AddKey(NaiveSequence& sequence, int64_t row, int64_t batch = 0) const {
    sequence.k.push_back(k.Row(row, batch));
    sequence.v.push_back(v.Row(row, batch));
  }
  void AddRow(NaiveSequence& sequence, int64_t row, int64_t batch = 0) const {
    AddQuery(sequence, row, batch);
    AddKey(sequence, row, batch);
  }
};

// A fused [rows, Q | K | V] projection and an output of its own, [rows, H * D + 3].
struct Fused {
  Fused(const Options& options, int64_t rows, uint32_t seed) {
    const int64_t dim = options.head_dim;
    const int64_t q_width = options.q_heads * dim;
    const int64_t kv_width = options.kv_heads * dim;
    const int64_t stride = q_width + 2 * kv_width;
    in = RandomFloats(rows * stride, seed);
    out.assign(rows * (q_width + 3), kCanary);
    tensors = {.q = {&in, 0, stride, dim},
               .k = {&in, q_width, stride, dim},
               .v = {&in, q_width + kv_width, stride, dim},
               .o = {&out, 0, q_width + 3, dim}};
  }
  Fused(const Fused&) = delete;
  Fused& operator=(const Fused&) = delete;

  // [batch, rows, ...] with `slot` rows from one sequence to the next.
  void SetBatch(int64_t slot) {
    for (Tensor* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.o}) {
      tensor->batch_stride = slot * tensor->row_stride;
    }
  }
  Dense AsDense(int32_t batch, int32_t rows) const {
    return {.q = tensors.q.Dense(),
            .o = tensors.o.Dense(),
            .k = tensors.k.Dense(),
            .v = tensors.v.Dense(),
            .batch = batch,
            .q_rows = rows,
            .kv_rows = rows};
  }
  Packed AsPacked(int32_t rows, std::span<const int32_t> cu_q,
                  std::span<const int32_t> cu_k) const {
    return {.q = tensors.q.View(),
            .o = tensors.o.View(),
            .k = tensors.k.View(),
            .v = tensors.v.View(),
            .total_q = rows,
            .total_k = rows,
            .cu_seqlens_q = cu_q,
            .cu_seqlens_k = cu_k};
  }

  std::vector<float> in, out;
  Qkvo tensors;
};

inline void Check(const Options& options, const Result<Batch>& batch,
                  const std::vector<NaiveSequence>& naive,
                  const std::vector<std::vector<float>*>& outputs, const std::string& what) {
  ASSERT_TRUE(batch.ok()) << what << ": " << batch.error().Message();
  ASSERT_EQ(batch->sequences(), static_cast<int32_t>(naive.size())) << what;
  CheckBatch(options, *batch, naive, outputs, what);
  if (testing::Test::HasFatalFailure()) return;
  CheckSequences(options, ToSequences(*batch, options), naive, outputs, what);
  if (testing::Test::HasFatalFailure()) return;
  // And once more from pointers: the same rows, whatever sets they end up in.
  const Result<Batch> again = FromSequences(ToSequences(*batch, options), options);
  ASSERT_TRUE(again.ok()) << what << ": " << again.error().Message();
  CheckBatch(options, *again, naive, outputs, what + ", from pointers");
}

inline std::string ErrorOf(const Result<Batch>& batch) {
  return batch.ok() ? "" : batch.error().Message();
}

}  // namespace segue::attention
