#include "model/dit/planned_attention.h"

#include <utility>

namespace segue::model {
namespace {

constexpr int32_t kText = 0;  // indices of the tensor sets
constexpr int32_t kImage = 1;

int64_t RoundedUp(int64_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

attention::TensorSet TensorsOf(const DitStreamWorkspace& stream) {
  const MatrixView& qkv = stream.qkv;
  const int64_t local = stream.attention.cols;
  const auto rows = static_cast<int32_t>(qkv.rows);
  return {.q = {qkv.data, qkv.stride},
          .k = {qkv.Cols(local, local).data, qkv.stride},
          .v = {qkv.Cols(2 * local, local).data, qkv.stride},
          .o = {stream.attention.data, stream.attention.stride},
          .q_rows = rows,
          .kv_rows = rows};
}

attention::PlanSettings SettingsOf(const DitConfig& config, const Placement& placement,
                                   const DitBatch& batch, const std::string& backend) {
  const auto text = static_cast<int32_t>(batch.text_rows());
  const auto image = static_cast<int32_t>(batch.image_rows());
  attention::PlanSettings settings;
  settings.options = DitAttentionOptions(config, config.num_attention_heads / placement.ranks,
                                         placement.activation_type());
  const bool host = placement.device == DeviceKind::kCpu;
  settings.place = host ? attention::Place::kCpu : attention::Place::kCuda;
  settings.max_sequences = static_cast<int32_t>(batch.sequences().size());
  settings.max_segments = 2;
  settings.tensors = {{.q_rows = text, .kv_rows = text}, {.q_rows = image, .kv_rows = image}};
  settings.device_lengths = true;
  settings.backend = backend;
  if (!host) settings.gpu = placement.gpu;
  for (const std::string_view name : DitConfig::kAttentionBackends) {
    settings.admitted.emplace_back(name);
  }
  return settings;
}

}  // namespace

DitLengths DitLengths::LayOut(Arena& arena, int64_t max_sequences) {
  return {.all = arena.Take<attention::SegmentRows>("attention lengths", 2 * max_sequences),
          .image = arena.Take<attention::SegmentRows>("attention lengths", 2 * max_sequences),
          .sequences = arena.Take<int32_t>("attention sequences", 1)};
}

DitHostLengths::DitHostLengths(const DitBatch& batch, Span<const int64_t> text_rows)
    : sequences(static_cast<int32_t>(text_rows.size())) {
  for (size_t i = 0; i < text_rows.size(); ++i) {
    const auto text_begin = static_cast<int32_t>(batch.text_begin(i));
    const auto image_begin = static_cast<int32_t>(batch.image_begin(i));
    const auto text_count = static_cast<int32_t>(text_rows[i]);
    const auto image_count = static_cast<int32_t>(batch.sequences()[i].image_rows());
    attention::SegmentRows text = {.source = kText,
                                   .q_begin = text_begin,
                                   .q_rows = text_count,
                                   .kv_begin = text_begin,
                                   .kv_rows = text_count};
    const attention::SegmentRows picture = {.source = kImage,
                                            .q_begin = image_begin,
                                            .q_rows = image_count,
                                            .kv_begin = image_begin,
                                            .kv_rows = image_count};
    all.insert(all.end(), {text, picture});
    text.q_rows = 0;
    image.insert(image.end(), {text, picture});
  }
}

PlannedDitAttention::PlannedDitAttention(PlannedAttention all, PlannedAttention image)
    : all_(std::move(all)), image_(std::move(image)) {}

Result<PlannedDitAttention> PlannedDitAttention::Create(const DitConfig& config,
                                                        const Placement& placement,
                                                        const DitBatch& batch,
                                                        const std::string& backend) {
  const attention::PlanSettings settings = SettingsOf(config, placement, batch, backend);
  SEGUE_ASSIGN_OR_RETURN(PlannedAttention all, PlannedAttention::Create(settings));
  SEGUE_ASSIGN_OR_RETURN(PlannedAttention image, PlannedAttention::Create(settings));
  return PlannedDitAttention(std::move(all), std::move(image));
}

int64_t PlannedDitAttention::workspace_bytes() const {
  return RoundedUp(all_.workspace_bytes()) + image_.workspace_bytes();
}

Status PlannedDitAttention::Prepare(void* workspace, const DitWorkspace& blocks,
                                    const Stream& stream) {
  tensors_ = {TensorsOf(blocks.text), TensorsOf(blocks.image)};
  SEGUE_RETURN_IF_ERROR(all_.Prepare(workspace, stream));
  return image_.Prepare(static_cast<char*>(workspace) + RoundedUp(all_.workspace_bytes()), stream);
}

Status PlannedDitAttention::Refresh(const DitLengths& lengths, const Stream& stream) {
  SEGUE_RETURN_IF_ERROR(all_.Refresh(lengths.all, lengths.sequences, stream));
  return image_.Refresh(lengths.image, lengths.sequences, stream);
}

Status PlannedDitAttention::Run(DitQueries queries, const ForwardContext& context) const {
  return (queries == DitQueries::kAll ? all_ : image_).Run(tensors_, context.kernels);
}

}  // namespace segue::model
