#include "model/text_encoder/attention.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace segue::model {
namespace {

attention::Options OptionsOf(const TextEncoderConfig& config, int ranks,
                             attention::ElementType type) {
  const int64_t head_dim = config.head_dim();
  return {.q_heads = static_cast<int32_t>(config.num_attention_heads / ranks),
          .kv_heads = static_cast<int32_t>(config.num_key_value_heads / ranks),
          .head_dim = static_cast<int32_t>(head_dim),
          .softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
          .causal = true,
          .element_type = type};
}

attention::PlanSettings SettingsOf(const attention::Options& options, Span<const int64_t> lengths,
                                   std::optional<attention::Gpu> gpu) {
  const auto rows =
      static_cast<int32_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  attention::PlanSettings settings;
  settings.options = options;
  settings.place = attention::Place::kCuda;
  settings.max_sequences = static_cast<int32_t>(lengths.size());
  settings.max_segments = 1;
  settings.tensors = {{.q_rows = rows, .kv_rows = rows}};
  settings.gpu = gpu;
  // One algorithm for all lengths, so that a prompt's bytes do not depend on which libraries there
  // are; cuDNN would also build a graph for every length.
  settings.admitted = {"sm90", "cuda"};
  return settings;
}

// One segment a prompt: slices of the fused q | k | v rows.
std::vector<attention::Sequence> MakeSequences(Span<const int64_t> lengths,
                                               const attention::TensorSet& tensors) {
  const auto from = [](const attention::RowsView& view, int64_t row) {
    attention::RowsView moved = view;
    moved.data = static_cast<float*>(view.data) + row * view.row_stride;
    return moved;
  };
  std::vector<attention::Sequence> sequences;
  int64_t row = 0;
  for (const int64_t rows : lengths) {
    sequences.push_back({{{.q = from(tensors.q, row),
                           .k = from(tensors.k, row),
                           .v = from(tensors.v, row),
                           .o = from(tensors.o, row),
                           .q_rows = rows,
                           .kv_rows = rows}}});
    row += rows;
  }
  return sequences;
}

}  // namespace

int64_t TextAttention::WorkspaceBytes(const TextEncoderConfig& config, const Placement& placement,
                                      Span<const int64_t> lengths) {
  if (placement.device == DeviceKind::kCpu || lengths.empty()) return 0;
  const auto options = OptionsOf(config, placement.ranks, attention::ElementType::kBFloat16);
  const auto planned = PlannedAttention::Create(SettingsOf(options, lengths, placement.gpu));
  return planned.ok() ? planned->workspace_bytes() : 0;  // Create says what is wrong
}

Result<TextAttention> TextAttention::Create(const TextEncoderConfig& config, int ranks,
                                            Span<const int64_t> lengths, const MatrixView& qkv,
                                            const MatrixView& output, const Stream& stream) {
  const bool gpu = stream.device() == DeviceKind::kCuda;
  TextAttention attention;
  attention.options_ = OptionsOf(
      config, ranks, gpu ? attention::ElementType::kBFloat16 : attention::ElementType::kFloat32);
  const int64_t query = output.cols;
  const int64_t key_value = (qkv.cols - query) / 2;
  attention.tensors_ = {.q = {qkv.data, qkv.stride},
                        .k = {qkv.Cols(query, key_value).data, qkv.stride},
                        .v = {qkv.Cols(query + key_value, key_value).data, qkv.stride},
                        .o = {output.data, output.stride},
                        .q_rows = static_cast<int32_t>(qkv.rows),
                        .kv_rows = static_cast<int32_t>(qkv.rows)};
  if (gpu) {
    SEGUE_ASSIGN_OR_RETURN(attention.planned_, PlannedAttention::Create(SettingsOf(
                                                   attention.options_, lengths, std::nullopt)));
  } else {
    attention.sequences_ = MakeSequences(lengths, attention.tensors_);
  }
  return attention;
}

Status TextAttention::Prepare(void* workspace, Span<const int64_t> lengths, const Stream& stream) {
  if (!planned_) return {};
  std::vector<attention::SegmentRows> rows;
  int32_t begin = 0;
  for (const int64_t length : lengths) {
    const auto count = static_cast<int32_t>(length);
    rows.push_back(
        {.source = 0, .q_begin = begin, .q_rows = count, .kv_begin = begin, .kv_rows = count});
    begin += count;
  }
  SEGUE_RETURN_IF_ERROR(planned_->Prepare(workspace, stream));
  return planned_->SetLengths(rows, stream);
}

Status TextAttention::Run(const ForwardContext& context) const {
  if (planned_) return planned_->Run({&tensors_, 1}, context.kernels);
  return attention::Attention(
      {.options = options_, .sequences = sequences_, .rounding = context.rounding},
      context.kernels);
}

}  // namespace segue::model
