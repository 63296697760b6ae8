#include "runtime/recorded_step.h"

#include <algorithm>
#include <utility>

#include "device/gpu.h"
#include "device/transfer.h"
#include "kernels/row_index.h"
#include "runtime/text_slot.h"

namespace segue::runtime {
namespace {

template <typename T>
Status CopyInAll(T* to, const std::vector<T>& from, const Stream& stream) {
  return CopyIn(to, from.data(), static_cast<int64_t>(from.size() * sizeof(T)), stream);
}

// Row counts as the slots have them; every sequence has a timestep of its own, which the data of a
// step may make the same.
std::vector<model::DitSequence> SequencesOf(const StepShape& shape) {
  std::vector<model::DitSequence> sequences;
  sequences.reserve(shape.sequences.size());
  for (const SequenceShape& sequence : shape.sequences) {
    sequences.push_back({.text_rows = sequence.text_slot,
                         .grid_height = sequence.grid_height,
                         .grid_width = sequence.grid_width,
                         .timestep = static_cast<int32_t>(sequences.size())});
  }
  return sequences;
}

}  // namespace

std::string StepShape::ToString() const {
  std::string text;
  for (const SequenceShape& sequence : sequences) {
    text += (text.empty() ? "" : " ") + std::to_string(sequence.grid_height) + "x" +
            std::to_string(sequence.grid_width) + "+" + std::to_string(sequence.text_slot);
  }
  return text + " " + mounted.ToString();
}

StepShape ShapeOf(Span<RequestState* const> requests) {
  StepShape shape = {.sequences = {}, .mounted = requests[0]->quality.mounted};
  for (const RequestState* request : requests) {
    for (const MatrixView& text : request->blocks.text) {
      shape.sequences.push_back({.grid_height = request->settings.grid_height(),
                                 .grid_width = request->settings.grid_width(),
                                 .text_slot = TextSlot(text.rows)});
    }
  }
  return shape;
}

Status CheckGpuAttention(const model::DitConfig& config, const model::Placement& placement,
                         const std::string& backend) {
  const StepShape smallest = {
      .sequences = {{.grid_height = 1, .grid_width = 1, .text_slot = kTextSlots[0]}}};
  SEGUE_ASSIGN_OR_RETURN(const model::DitBatch batch,
                         model::DitBatch::Create(config, SequencesOf(smallest)));
  SEGUE_RETURN_IF_ERROR(model::PlannedDitAttention::Create(config, placement, batch, backend));
  return {};
}

StepBlocks StepBlocks::LayOut(Arena& arena, const model::DitConfig& config,
                              const model::Placement& placement, const model::DitBatch& batch,
                              int64_t attention_bytes) {
  const int64_t image_rows = batch.image_rows();
  const int64_t text_rows = batch.text_rows();
  const auto sequences = static_cast<int64_t>(batch.sequences().size());
  const int64_t angles = batch.positions() * config.attention_head_dim / 2;
  const DType dtype = placement.activation_type();
  StepBlocks blocks;
  blocks.latents = arena.TakeMatrix("latents of a step", image_rows, config.in_channels, dtype);
  blocks.text = arena.TakeMatrix("text of a step", text_rows, config.hidden(), dtype);
  blocks.velocity = arena.TakeMatrix("velocity", image_rows, config.in_channels, dtype);
  blocks.image_slot = arena.Take<int32_t>("image slots", image_rows);
  blocks.text_slot = arena.Take<int32_t>("text slots", text_rows);
  blocks.image_position = arena.Take<int32_t>("image positions", image_rows);
  blocks.text_position = arena.Take<int32_t>("text positions", text_rows);
  blocks.cos = arena.Take<float>("rotation", angles);
  blocks.sin = arena.Take<float>("rotation", angles);
  blocks.lengths = model::DitLengths::LayOut(arena, sequences);
  blocks.modulation = arena.Take<int32_t>("modulation entries", sequences);
  blocks.records = arena.Take<kernels::SamplerRecord>("sampler records", sequences);
  blocks.image_modulation = arena.Take<int32_t>("image modulation", image_rows);
  blocks.text_modulation = arena.Take<int32_t>("text modulation", text_rows);
  blocks.not_finite = arena.Take<int32_t>("finite flags", sequences);
  blocks.forward =
      model::DitWorkspace::LayOut(arena, config, placement.ranks, image_rows, text_rows, dtype);
  blocks.attention = arena.TakeBytes("attention plan", attention_bytes);
  return blocks;
}

RecordedStep::RecordedStep(const model::Dit& dit, const model::Placement& placement,
                           StepShape shape, model::DitBatch batch,
                           model::PlannedDitAttention attention)
    : dit_(&dit),
      placement_(placement),
      shape_(std::move(shape)),
      batch_(std::move(batch)),
      attention_(std::move(attention)) {}

Result<RecordedStep> RecordedStep::Create(const model::Dit& dit, const model::Placement& placement,
                                          const StepShape& shape,
                                          const std::string& attention_backend) {
  SEGUE_ASSIGN_OR_RETURN(model::DitBatch batch,
                         model::DitBatch::Create(dit.config(), SequencesOf(shape)));
  SEGUE_ASSIGN_OR_RETURN(
      model::PlannedDitAttention attention,
      model::PlannedDitAttention::Create(dit.config(), placement, batch, attention_backend));
  return RecordedStep(dit, placement, shape, std::move(batch), std::move(attention));
}

int64_t RecordedStep::bytes() const {
  Arena arena;
  StepBlocks::LayOut(arena, dit_->config(), placement_, batch_, attention_.workspace_bytes());
  return arena.peak_bytes();
}

Status RecordedStep::WriteTables(const Stream& stream) const {
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.image_slot, batch_.image_timestep(), stream));
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.text_slot, batch_.text_timestep(), stream));
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.image_position, batch_.image_position(), stream));
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.text_position, batch_.text_position(), stream));
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.cos, batch_.cos(), stream));
  return CopyInAll(blocks_.sin, batch_.sin(), stream);
}

// Rows of a slot that its prompt does not fill are computed and reach nothing, whatever they hold.
// On a GPU they are zeros all the same: tools that look for reads of unwritten memory stay useful.
Status RecordedStep::ClearSlot(size_t sequence, int64_t rows, const Stream& stream) const {
  if (stream.device() == DeviceKind::kCpu) return {};
  const MatrixView& text = blocks_.text;
  const int64_t rest = batch_.sequences()[sequence].text_rows - rows;
  return SetToZero(text.Rows(batch_.text_begin(sequence) + rows, rest).data,
                   rest * text.cols * static_cast<int64_t>(SizeOf(text.dtype)),
                   stream.cuda_stream());
}

Status RecordedStep::Occupy(Arena& arena, Span<RequestState* const> requests,
                            const Stream& stream) {
  blocks_ =
      StepBlocks::LayOut(arena, dit_->config(), placement_, batch_, attention_.workspace_bytes());
  SEGUE_RETURN_IF_ERROR(arena.Check());
  SEGUE_RETURN_IF_ERROR(WriteTables(stream));
  std::vector<int64_t> text_rows;
  for (const RequestState* request : requests) {
    for (const MatrixView& text : request->blocks.text) {
      const int64_t begin = batch_.text_begin(text_rows.size());
      const int64_t bytes = text.rows * text.cols * static_cast<int64_t>(SizeOf(text.dtype));
      SEGUE_RETURN_IF_ERROR(
          CopyWithin(blocks_.text.Rows(begin, text.rows).data, text.data, bytes, stream));
      SEGUE_RETURN_IF_ERROR(ClearSlot(text_rows.size(), text.rows, stream));
      text_rows.push_back(text.rows);
    }
  }
  const model::DitHostLengths lengths(batch_, text_rows);
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.lengths.all, lengths.all, stream));
  SEGUE_RETURN_IF_ERROR(CopyInAll(blocks_.lengths.image, lengths.image, stream));
  SEGUE_RETURN_IF_ERROR(
      CopyIn(blocks_.lengths.sequences, &lengths.sequences, sizeof(lengths.sequences), stream));
  return attention_.Prepare(blocks_.attention, blocks_.forward, stream);
}

Status RecordedStep::EnqueueForward(const MatrixView& table, const model::ForwardContext& context) {
  const auto slots = static_cast<int32_t>(batch_.sequences().size());
  const auto spread = [&](const int32_t* slot, int32_t* index, int64_t count) {
    return kernels::RowIndex(
        {.slot = slot, .entry = blocks_.modulation, .slots = slots, .index = index, .count = count},
        context.kernels);
  };
  SEGUE_RETURN_IF_ERROR(attention_.Refresh(blocks_.lengths, context.kernels.stream));
  SEGUE_RETURN_IF_ERROR(spread(blocks_.image_slot, blocks_.image_modulation, batch_.image_rows()));
  SEGUE_RETURN_IF_ERROR(spread(blocks_.text_slot, blocks_.text_modulation, batch_.text_rows()));
  return dit_->Run({.latents = blocks_.latents,
                    .text = blocks_.text,
                    .modulation = table,
                    .rows = {.image_modulation = blocks_.image_modulation,
                             .text_modulation = blocks_.text_modulation,
                             .cos = blocks_.cos,
                             .sin = blocks_.sin,
                             .positions = batch_.positions(),
                             .image_position = blocks_.image_position,
                             .text_position = blocks_.text_position},
                    .attention = &attention_,
                    .workspace = blocks_.forward,
                    .velocity = blocks_.velocity},
                   context);
}

Status RecordedStep::EnqueueSampler(const model::ForwardContext& context) {
  int64_t max_rows = 0;
  for (const model::DitSequence& sequence : batch_.sequences()) {
    max_rows = std::max(max_rows, sequence.image_rows());
  }
  return kernels::SamplerStep({.velocity = blocks_.velocity,
                               .latents = blocks_.latents,
                               .records = blocks_.records,
                               .count = static_cast<int32_t>(batch_.sequences().size()),
                               .max_rows = static_cast<int32_t>(max_rows),
                               .not_finite = blocks_.not_finite,
                               .rounding = context.rounding},
                              context.kernels);
}

}  // namespace segue::runtime
