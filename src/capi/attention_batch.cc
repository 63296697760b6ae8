// Batches of the C API.
#include <memory>
#include <span>

#include "capi/handles.h"

namespace segue::capi {
namespace {

using attention::Batch;

attention::DenseView ReadDense(const segue_dense_view& view) {
  return {.rows = ReadView(view.rows), .batch_stride = view.batch_stride};
}

segue_rows_view WriteView(const attention::RowsView& view) {
  return {.data = view.data, .row_stride = view.row_stride, .head_stride = view.head_stride};
}

std::unique_ptr<segue_attention_batch> MakeHandle(Batch batch) {
  auto handle = std::make_unique<segue_attention_batch>();
  for (const attention::TensorSet& set : batch.tensors) {
    handle->tensors.push_back({.q = WriteView(set.q),
                               .k = WriteView(set.k),
                               .v = WriteView(set.v),
                               .o = WriteView(set.o),
                               .q_rows = set.q_rows,
                               .kv_rows = set.kv_rows});
  }
  for (const attention::SegmentRows& rows : batch.rows) {
    handle->rows.push_back({.source = rows.source,
                            .q_begin = rows.q_begin,
                            .q_rows = rows.q_rows,
                            .kv_begin = rows.kv_begin,
                            .kv_rows = rows.kv_rows});
  }
  handle->batch = std::move(batch);
  return handle;
}

// Reads form and options, calls `adapt(form, options)` and hands out a batch.
template <typename Form, typename Adapt>
segue_result MakeBatch(const char* function, const Form* form,
                       const segue_attention_options* options, segue_attention_batch** batch,
                       segue_error* error, const Adapt& adapt) {
  if (batch != nullptr) *batch = nullptr;
  return Guard(error, [&]() -> Status {
    if (batch == nullptr) return Null(function, "batch");
    SEGUE_ASSIGN_OR_RETURN(const Form read, Read(function, "form", form));
    SEGUE_ASSIGN_OR_RETURN(const attention::Options checked, ReadOptions(function, options));
    SEGUE_ASSIGN_OR_RETURN(Batch made, adapt(read, checked));
    *batch = MakeHandle(std::move(made)).release();
    return {};
  });
}

// Bounds of `sequences` sequences.
Result<std::span<const int32_t>> ReadBounds(const char* function, const char* name,
                                            const int32_t* bounds, int32_t sequences) {
  if (sequences < 0) {
    return Invalid(function, "form.sequences", std::to_string(sequences), "0 or more");
  }
  if (bounds == nullptr) return Null(function, std::string("form.") + name);
  return std::span<const int32_t>(bounds, static_cast<size_t>(sequences) + 1);
}

Result<Batch> AdaptPacked(const segue_attention_packed& form, const attention::Options& options) {
  constexpr char kFunction[] = "segue_attention_batch_from_packed";
  attention::Packed packed = {.q = ReadView(form.q),
                              .o = ReadView(form.o),
                              .k = ReadView(form.k),
                              .v = ReadView(form.v),
                              .total_q = form.total_q,
                              .total_k = form.total_k,
                              .max_seqlen_q = form.max_seqlen_q,
                              .max_seqlen_k = form.max_seqlen_k};
  SEGUE_ASSIGN_OR_RETURN(packed.cu_seqlens_q,
                         ReadBounds(kFunction, "cu_seqlens_q", form.cu_seqlens_q, form.sequences));
  SEGUE_ASSIGN_OR_RETURN(packed.cu_seqlens_k,
                         ReadBounds(kFunction, "cu_seqlens_k", form.cu_seqlens_k, form.sequences));
  return FromPacked(packed, options);
}

Result<Batch> AdaptPrefixMain(const segue_attention_prefix_main& form,
                              const attention::Options& options) {
  constexpr char kFunction[] = "segue_attention_batch_from_prefix_main";
  const auto part = [&form](const segue_dense_view& q, const segue_dense_view& k,
                            const segue_dense_view& v, const segue_dense_view& o, int32_t rows) {
    return attention::Dense{.q = ReadDense(q),
                            .o = ReadDense(o),
                            .k = ReadDense(k),
                            .v = ReadDense(v),
                            .batch = form.batch,
                            .q_rows = rows,
                            .kv_rows = rows};
  };
  attention::PrefixMain joint = {
      .prefix = part(form.prefix_q, form.prefix_k, form.prefix_v, form.prefix_o, form.prefix_rows),
      .main = part(form.main_q, form.main_k, form.main_v, form.main_o, form.main_rows),
      .zero_padding = form.zero_padding != 0};
  for (const int32_t count : {form.batch, form.prefix_rows, form.main_rows}) {
    if (count >= 0) continue;
    return Invalid(kFunction, "form", std::to_string(count), "0 or more sequences and rows");
  }
  const auto batch = static_cast<size_t>(form.batch);
  if (form.mask != nullptr) {
    if (form.prefix_lengths != nullptr || form.main_lengths != nullptr) {
      return Invalid(kFunction, "form.mask", "lengths beside it", "NULL for either");
    }
    const size_t rows = static_cast<size_t>(form.prefix_rows) + static_cast<size_t>(form.main_rows);
    return FromKeyMask(joint, {form.mask, batch * rows}, options);
  }
  std::vector<int32_t> whole_prefixes;
  if (form.prefix_lengths != nullptr) {
    joint.prefix_lengths = {form.prefix_lengths, batch};
  } else {
    whole_prefixes.assign(batch, form.prefix_rows);
    joint.prefix_lengths = whole_prefixes;
  }
  if (form.main_lengths != nullptr) joint.main_lengths = {form.main_lengths, batch};
  return FromPrefixMain(joint, options);
}

Result<Batch> AdaptIndices(const segue_attention_row_indices& form,
                           const attention::Options& options) {
  constexpr char kFunction[] = "segue_attention_batch_from_row_indices";
  attention::RowIndices rows = {.q = ReadView(form.q),
                                .k = ReadView(form.k),
                                .v = ReadView(form.v),
                                .o = ReadView(form.o),
                                .total = form.total};
  SEGUE_ASSIGN_OR_RETURN(rows.cu_seqlens,
                         ReadBounds(kFunction, "cu_seqlens", form.cu_seqlens, form.sequences));
  const int32_t count = std::max(rows.cu_seqlens.back(), 0);  // a negative one is found below
  if (count > 0 && form.indices == nullptr) return Null(kFunction, "form.indices");
  rows.indices = {form.indices, static_cast<size_t>(count)};
  return FromRowIndices(rows, options);
}

}  // namespace
}  // namespace segue::capi

using segue::capi::Guard;
using segue::capi::Invalid;
using segue::capi::Null;

segue_result segue_attention_batch_from_dense(const segue_attention_dense* form,
                                              const segue_attention_options* options,
                                              segue_attention_batch** batch, segue_error* error) {
  return segue::capi::MakeBatch(
      __func__, form, options, batch, error,
      [](const segue_attention_dense& dense, const segue::attention::Options& checked) {
        return segue::attention::FromDense({.q = segue::capi::ReadDense(dense.q),
                                            .o = segue::capi::ReadDense(dense.o),
                                            .k = segue::capi::ReadDense(dense.k),
                                            .v = segue::capi::ReadDense(dense.v),
                                            .batch = dense.batch,
                                            .q_rows = dense.q_rows,
                                            .kv_rows = dense.kv_rows},
                                           checked);
      });
}

segue_result segue_attention_batch_from_packed(const segue_attention_packed* form,
                                               const segue_attention_options* options,
                                               segue_attention_batch** batch, segue_error* error) {
  return segue::capi::MakeBatch(__func__, form, options, batch, error, segue::capi::AdaptPacked);
}

segue_result segue_attention_batch_from_trailing_padding(
    const segue_attention_trailing_padding* form, const segue_attention_options* options,
    segue_attention_batch** batch, segue_error* error) {
  return segue::capi::MakeBatch(
      __func__, form, options, batch, error,
      [](const segue_attention_trailing_padding& padded, const segue::attention::Options& checked) {
        return segue::attention::FromTrailingPadding({.q = segue::capi::ReadView(padded.q),
                                                      .k = segue::capi::ReadView(padded.k),
                                                      .v = segue::capi::ReadView(padded.v),
                                                      .o = segue::capi::ReadView(padded.o),
                                                      .used = padded.used,
                                                      .total = padded.total},
                                                     checked);
      });
}

segue_result segue_attention_batch_from_prefix_main(const segue_attention_prefix_main* form,
                                                    const segue_attention_options* options,
                                                    segue_attention_batch** batch,
                                                    segue_error* error) {
  return segue::capi::MakeBatch(__func__, form, options, batch, error,
                                segue::capi::AdaptPrefixMain);
}

segue_result segue_attention_batch_from_row_indices(const segue_attention_row_indices* form,
                                                    const segue_attention_options* options,
                                                    segue_attention_batch** batch,
                                                    segue_error* error) {
  return segue::capi::MakeBatch(__func__, form, options, batch, error, segue::capi::AdaptIndices);
}

segue_result segue_attention_batch_describe(const segue_attention_batch* batch,
                                            segue_attention_batch_view* view, segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (batch == nullptr) return Null(function, "batch");
    SEGUE_RETURN_IF_ERROR(segue::capi::CheckStructSize(function, "view", view));
    segue_attention_batch_view found = {.struct_size = 0,
                                        .sequences = batch->batch.sequences(),
                                        .segments = batch->batch.segments,
                                        .tensor_count = static_cast<int32_t>(batch->tensors.size()),
                                        .tensors = batch->tensors.data(),
                                        .rows = batch->rows.data(),
                                        .query_rows = 0};
    for (const segue_segment_rows& rows : batch->rows) found.query_rows += rows.q_rows;
    segue::capi::Write(found, view);
    return {};
  });
}

segue_result segue_attention_batch_rows(const segue_attention_batch* batch, int32_t max_segments,
                                        segue_segment_rows* rows, size_t capacity,
                                        segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (batch == nullptr) return Null(function, "batch");
    const int32_t segments = batch->batch.segments;
    if (max_segments < segments) {
      return Invalid(function, "max_segments", std::to_string(max_segments),
                     "at least " + std::to_string(segments));
    }
    const auto stride = static_cast<size_t>(max_segments);
    const size_t entries = static_cast<size_t>(batch->batch.sequences()) * stride;
    if (capacity < entries) {
      return Invalid(function, "capacity", std::to_string(capacity),
                     "at least " + std::to_string(entries));
    }
    if (entries > 0 && rows == nullptr) return Null(function, "rows");
    for (size_t i = 0; i < entries; i += stride) {
      const segue_segment_rows* from = batch->rows.data() + i / stride * segments;
      std::copy_n(from, segments, rows + i);
      std::fill_n(rows + i + segments, stride - segments, segue_segment_rows{});
    }
    return {};
  });
}

void segue_attention_batch_destroy(segue_attention_batch* batch) { delete batch; }
