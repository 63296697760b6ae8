#include "model/dit/attention.h"

#include <cmath>

namespace segue::model {
namespace {

// Rows of one sequence's text or image stream, slices of the fused q | k | v rows.
attention::Segment MakeSegment(const DitStreamWorkspace& stream, int64_t begin, int64_t rows) {
  float* qkv = stream.qkv.Row<float>(begin);
  const int64_t local = stream.attention.cols;
  return {.q = {qkv, stream.qkv.stride},
          .k = {qkv + local, stream.qkv.stride},
          .v = {qkv + 2 * local, stream.qkv.stride},
          .o = {stream.attention.Row<float>(begin), stream.attention.stride},
          .q_rows = rows,
          .kv_rows = rows};
}

}  // namespace

attention::Options DitAttentionOptions(const DitConfig& config, int64_t heads, DType dtype) {
  const auto count = static_cast<int32_t>(heads);
  const auto head_dim = static_cast<double>(config.attention_head_dim);
  return {.q_heads = count,
          .kv_heads = count,
          .head_dim = static_cast<int32_t>(config.attention_head_dim),
          .softmax_scale = static_cast<float>(1.0 / std::sqrt(head_dim)),
          .element_type = dtype == DType::kBF16 ? attention::ElementType::kBFloat16
                                                : attention::ElementType::kFloat32};
}

HostDitAttention::HostDitAttention(const DitConfig& config, const DitBatch& batch,
                                   const DitWorkspace& workspace)
    : options_(DitAttentionOptions(
          config, workspace.image.attention.cols / config.attention_head_dim, DType::kF32)) {
  for (size_t i = 0; i < batch.sequences().size(); ++i) {
    const DitSequence& sequence = batch.sequences()[i];
    attention::Segment text = MakeSegment(workspace.text, batch.text_begin(i), sequence.text_rows);
    const attention::Segment image =
        MakeSegment(workspace.image, batch.image_begin(i), sequence.image_rows());
    all_.push_back({{text, image}});
    text.q_rows = 0;
    image_.push_back({{text, image}});
  }
}

Status HostDitAttention::Run(DitQueries queries, const ForwardContext& context) const {
  return attention::Attention({.options = options_,
                               .sequences = queries == DitQueries::kAll ? all_ : image_,
                               .rounding = context.rounding,
                               .backend = context.attention_backend,
                               .admitted = DitConfig::kAttentionBackends},
                              context.kernels);
}

std::string HostDitAttention::Backend(const DitConfig& config, const ForwardContext& context) {
  return attention::ChosenBackend(
      {.options = DitAttentionOptions(config, config.num_attention_heads, DType::kF32),
       .backend = context.attention_backend,
       .admitted = DitConfig::kAttentionBackends},
      context.kernels);
}

}  // namespace segue::model
