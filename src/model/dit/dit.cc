#include "model/dit/dit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/activation.h"
#include "kernels/gate_residual.h"
#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/timestep_embedding.h"
#include "segue/attention_plan.h"

namespace segue::model {
namespace {

DitStreamWorkspace LayOutStream(Arena& arena, const DitConfig& config, int ranks, int64_t rows,
                                int64_t timesteps) {
  const int64_t hidden = config.hidden();
  const int64_t local = hidden / ranks;
  const int64_t local_mlp = config.mlp_hidden() / ranks;
  DitStreamWorkspace stream;
  stream.hidden = arena.TakeMatrix("transformer hidden", rows, hidden);
  stream.normed = arena.TakeMatrix("transformer normed", rows, hidden);
  auto* shared = arena.Take<float>("transformer qkv or mlp", rows * std::max(4 * local, local_mlp));
  stream.qkv = ContiguousMatrix(shared, rows, 3 * local);
  stream.attention =
      ContiguousMatrix(shared == nullptr ? nullptr : shared + rows * 3 * local, rows, local);
  stream.mlp = ContiguousMatrix(shared, rows, local_mlp);
  stream.modulation = arena.TakeMatrix("transformer modulation", timesteps, 6 * hidden);
  return stream;
}

// Segments of one sequence's text or image rows, slices of the fused q | k | v rows.
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

// Text rows, then image rows, of every sequence. Without text queries in the last block.
std::vector<attention::Sequence> MakeSegments(const DitBatch& batch, const DitWorkspace& workspace,
                                              bool text_queries) {
  std::vector<attention::Sequence> sequences;
  for (size_t i = 0; i < batch.sequences().size(); ++i) {
    const DitSequence& sequence = batch.sequences()[i];
    attention::Segment text = MakeSegment(workspace.text, batch.text_begin(i), sequence.text_rows);
    if (!text_queries) text.q_rows = 0;
    sequences.push_back(
        {{text, MakeSegment(workspace.image, batch.image_begin(i), sequence.image_rows())}});
  }
  return sequences;
}

Error InputError(std::string argument, const Shape& got, const Shape& wanted) {
  return {.code = ErrorCode::kInternal,
          .operation = "run the transformer",
          .argument = std::move(argument),
          .got = got.ToString(),
          .wanted = wanted.ToString()};
}

Status CheckInputs(const DitConfig& config, const DitBatch& batch, const DitInputs& inputs) {
  const auto check = [](std::string argument, const MatrixView& view, int64_t rows, int64_t cols) {
    if (view.rows == rows && view.cols == cols) return Status();
    return Status(InputError(std::move(argument), {view.rows, view.cols}, {rows, cols}));
  };
  const auto sequences = static_cast<int64_t>(inputs.sequences.size());
  const auto wanted = static_cast<int64_t>(batch.sequences().size());
  if (sequences != wanted) return InputError("sequences", {sequences}, {wanted});
  const auto timesteps = static_cast<int64_t>(inputs.timesteps.size());
  if (timesteps != batch.timesteps()) {
    return InputError("timesteps", {timesteps}, {batch.timesteps()});
  }
  SEGUE_RETURN_IF_ERROR(check("velocity", inputs.velocity, batch.image_rows(), config.in_channels));
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    const std::string name = "sequence " + std::to_string(i);
    const DitSequence& sequence = batch.sequences()[i];
    SEGUE_RETURN_IF_ERROR(check(name + ": latents", inputs.sequences[i].latents,
                                sequence.image_rows(), config.in_channels));
    SEGUE_RETURN_IF_ERROR(
        check(name + ": text", inputs.sequences[i].text, sequence.text_rows, config.hidden()));
  }
  return {};
}

Status Copy(const MatrixView& from, const MatrixView& to, const ForwardContext& context) {
  return kernels::Activate({.x = from, .y = to, .activation = kernels::Activation::kNone},
                           context.kernels);
}

}  // namespace

DitWorkspace DitWorkspace::LayOut(Arena& arena, const DitConfig& config, int ranks,
                                  int64_t image_rows, int64_t text_rows, int64_t timesteps) {
  DitWorkspace workspace;
  workspace.latents = arena.TakeMatrix("transformer latents", image_rows, config.in_channels);
  workspace.image = LayOutStream(arena, config, ranks, image_rows, timesteps);
  workspace.text = LayOutStream(arena, config, ranks, text_rows, timesteps);
  workspace.sinusoids =
      arena.TakeMatrix("timestep sinusoids", timesteps, DitConfig::kTimestepChannels);
  workspace.time_hidden = arena.TakeMatrix("timestep hidden", timesteps, config.hidden());
  workspace.time = arena.TakeMatrix("timestep embedding", timesteps, config.hidden());
  return workspace;
}

Dit::Dit(const DitConfig& config, WeightReader& reader, const comm::Communicator& communicator)
    : config_(config),
      img_in_(reader, {"img_in", config.in_channels, config.hidden()}),
      txt_norm_(reader.Take("txt_norm.weight", {config.joint_attention_dim})),
      txt_in_(reader, {"txt_in", config.joint_attention_dim, config.hidden()}),
      time_1_(reader, {"time_text_embed.timestep_embedder.linear_1", DitConfig::kTimestepChannels,
                       config.hidden()}),
      time_2_(reader,
              {"time_text_embed.timestep_embedder.linear_2", config.hidden(), config.hidden()}),
      norm_out_(reader, {"norm_out.linear", config.hidden(), 2 * config.hidden()}),
      proj_out_(reader, {"proj_out", config.hidden(), config.proj_channels()}) {
  constexpr StreamNames kImage = {"img_mod.1",   "attn.to_q",   "attn.to_k",     "attn.to_v",
                                  "attn.norm_q", "attn.norm_k", "attn.to_out.0", "img_mlp.net."};
  constexpr StreamNames kText = {"txt_mod.1",       "attn.add_q_proj",   "attn.add_k_proj",
                                 "attn.add_v_proj", "attn.norm_added_q", "attn.norm_added_k",
                                 "attn.to_add_out", "txt_mlp.net."};
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const std::string name = "transformer_blocks." + std::to_string(i) + ".";
    blocks_.push_back({.image = LoadStream(config, reader, name, kImage, communicator),
                       .text = LoadStream(config, reader, name, kText, communicator)});
  }
}

Dit::StreamLayers Dit::LoadStream(const DitConfig& config, WeightReader& reader,
                                  const std::string& block, const StreamNames& names,
                                  const comm::Communicator& communicator) {
  const int64_t hidden = config.hidden();
  const auto column = [&](const std::string& name, int64_t out) {
    return ColumnParallelLinear(reader, {block + name, hidden, out}, communicator);
  };
  const auto row = [&](const std::string& name, int64_t in) {
    return RowParallelLinear(reader, {block + name, in, hidden}, communicator);
  };
  const auto norm = [&](const std::string& name) {
    return reader.Take(block + name + ".weight", {config.attention_head_dim});
  };
  const std::string mlp = names.mlp;
  return {.modulation = ReplicatedLinear(reader, {block + names.modulation, hidden, 6 * hidden}),
          .q_proj = column(names.q, hidden),
          .k_proj = column(names.k, hidden),
          .v_proj = column(names.v, hidden),
          .q_norm = norm(names.q_norm),
          .k_norm = norm(names.k_norm),
          .out_proj = row(names.out, hidden),
          .mlp_in = column(mlp + "0.proj", config.mlp_hidden()),
          .mlp_out = row(mlp + "2", config.mlp_hidden())};
}

// One stream of one forward: its blocks of memory and how its rows index the shared tables.
struct Dit::Stream {
  const DitStreamWorkspace* workspace = nullptr;
  const int32_t* row_timestep = nullptr;
  const int32_t* row_position = nullptr;

  kernels::RowTable Modulation(ModulationSlice slice) const {
    const MatrixView& table = workspace->modulation;
    return {.data = table.Row<float>(0) + slice * workspace->hidden.cols,
            .rows = table.rows,
            .stride = table.stride,
            .index = row_timestep};
  }
};

struct Dit::Run {
  DitWorkspace workspace;
  Stream image, text;
  kernels::RopeTable rotation;  // without an index
  std::vector<attention::Sequence> sequences;
  std::vector<attention::Sequence> last_sequences;
  const ForwardContext* context = nullptr;
};

Status Dit::EncodeText(const MatrixView& embeddings, const MatrixView& text,
                       const ForwardContext& context) const {
  SEGUE_RETURN_IF_ERROR(kernels::RmsNorm({.x = embeddings,
                                          .weight = txt_norm_,
                                          .y = embeddings,
                                          .eps = DitConfig::kNormEpsilon,
                                          .rounding = context.rounding},
                                         context.kernels));
  return txt_in_.Forward(embeddings, text, context);
}

Status Dit::Embed(const Run& run, const DitBatch& batch, const DitInputs& inputs) const {
  const ForwardContext& context = *run.context;
  const DitWorkspace& workspace = run.workspace;
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    const DitSequence& sequence = batch.sequences()[i];
    SEGUE_RETURN_IF_ERROR(Copy(inputs.sequences[i].latents,
                               workspace.latents.Rows(batch.image_begin(i), sequence.image_rows()),
                               context));
    SEGUE_RETURN_IF_ERROR(Copy(inputs.sequences[i].text,
                               workspace.text.hidden.Rows(batch.text_begin(i), sequence.text_rows),
                               context));
  }
  SEGUE_RETURN_IF_ERROR(img_in_.Forward(workspace.latents, workspace.image.hidden, context));
  SEGUE_RETURN_IF_ERROR(
      kernels::TimestepEmbedding({.timesteps = inputs.timesteps.data(),
                                  .y = workspace.sinusoids,
                                  .scale = static_cast<float>(DitConfig::kTimestepScale),
                                  .rounding = context.rounding},
                                 context.kernels));
  SEGUE_RETURN_IF_ERROR(time_1_.Forward(workspace.sinusoids, workspace.time_hidden, context,
                                        kernels::Activation::kSilu));
  // Every reader of the embedding applies SiLU first.
  return time_2_.Forward(workspace.time_hidden, workspace.time, context,
                         kernels::Activation::kSilu);
}

Status Dit::Modulate(const Stream& stream, ModulationSlice shift, ModulationSlice scale,
                     const ForwardContext& context) const {
  return kernels::LayerNorm({.x = stream.workspace->hidden,
                             .y = stream.workspace->normed,
                             .eps = DitConfig::kNormEpsilon,
                             .scale = stream.Modulation(scale),
                             .shift = stream.Modulation(shift),
                             .rounding = context.rounding},
                            context.kernels);
}

Status Dit::AddGated(const Stream& stream, ModulationSlice gate,
                     const ForwardContext& context) const {
  return kernels::GateResidual({.y = stream.workspace->normed,
                                .gate = stream.Modulation(gate),
                                .h = stream.workspace->hidden,
                                .rounding = context.rounding},
                               context.kernels);
}

Status Dit::ProjectHeads(const Run& run, const Stream& stream, const StreamLayers& layers,
                         bool queries) const {
  const ForwardContext& context = *run.context;
  const MatrixView& normed = stream.workspace->normed;
  const int64_t local = layers.q_proj.local_out_features();
  const auto normalise_and_turn = [&](const MatrixView& heads, const WeightView& weight) {
    kernels::RopeTable rotation = run.rotation;
    rotation.index = stream.row_position;
    return kernels::QkNormRope({.x = heads,
                                .head_dim = static_cast<int32_t>(config_.attention_head_dim),
                                .weight = weight,
                                .eps = DitConfig::kNormEpsilon,
                                .rope = rotation,
                                .rounding = context.rounding},
                               context.kernels);
  };
  const MatrixView q = stream.workspace->qkv.Cols(0, local);
  const MatrixView k = stream.workspace->qkv.Cols(local, local);
  const MatrixView v = stream.workspace->qkv.Cols(2 * local, local);
  if (queries) {
    SEGUE_RETURN_IF_ERROR(layers.q_proj.Forward(normed, q, context));
    SEGUE_RETURN_IF_ERROR(normalise_and_turn(q, layers.q_norm));
  }
  SEGUE_RETURN_IF_ERROR(layers.k_proj.Forward(normed, k, context));
  SEGUE_RETURN_IF_ERROR(normalise_and_turn(k, layers.k_norm));
  return layers.v_proj.Forward(normed, v, context);
}

Status Dit::FinishStream(const Stream& stream, const StreamLayers& layers,
                         const ForwardContext& context) const {
  const DitStreamWorkspace& workspace = *stream.workspace;
  SEGUE_RETURN_IF_ERROR(layers.out_proj.Forward(workspace.attention, workspace.normed, context));
  SEGUE_RETURN_IF_ERROR(AddGated(stream, kGate1, context));
  SEGUE_RETURN_IF_ERROR(Modulate(stream, kShift2, kScale2, context));
  SEGUE_RETURN_IF_ERROR(layers.mlp_in.Forward(workspace.normed, workspace.mlp, context,
                                              kernels::Activation::kGeluTanh));
  SEGUE_RETURN_IF_ERROR(layers.mlp_out.Forward(workspace.mlp, workspace.normed, context));
  return AddGated(stream, kGate2, context);
}

Status Dit::RunBlock(const Run& run, const Block& block, bool last) const {
  const ForwardContext& context = *run.context;
  const MatrixView& time = run.workspace.time;
  // The last block's text stream ends at its keys and values: of its modulation only the first
  // shift and scale are read.
  const int64_t text_slices = last ? 2 : 6;
  SEGUE_RETURN_IF_ERROR(
      block.image.modulation.Forward(time, run.workspace.image.modulation, context));
  SEGUE_RETURN_IF_ERROR(block.text.modulation.Forward(
      time, run.workspace.text.modulation.Cols(0, text_slices * config_.hidden()), context));

  SEGUE_RETURN_IF_ERROR(Modulate(run.image, kShift1, kScale1, context));
  SEGUE_RETURN_IF_ERROR(Modulate(run.text, kShift1, kScale1, context));
  SEGUE_RETURN_IF_ERROR(ProjectHeads(run, run.image, block.image, true));
  SEGUE_RETURN_IF_ERROR(ProjectHeads(run, run.text, block.text, !last));

  const auto heads =
      static_cast<int32_t>(run.workspace.image.attention.cols / config_.attention_head_dim);
  const double head_dim = static_cast<double>(config_.attention_head_dim);
  const attention::Options options = {
      .q_heads = heads,
      .kv_heads = heads,
      .head_dim = static_cast<int32_t>(config_.attention_head_dim),
      .softmax_scale = static_cast<float>(1.0 / std::sqrt(head_dim))};
  SEGUE_RETURN_IF_ERROR(
      attention::Attention({.options = options,
                            .sequences = last ? run.last_sequences : run.sequences,
                            .rounding = context.rounding,
                            .backend = context.attention_backend,
                            .admitted = DitConfig::kAttentionBackends},
                           context.kernels));
  SEGUE_RETURN_IF_ERROR(FinishStream(run.image, block.image, context));
  return last ? Status() : FinishStream(run.text, block.text, context);
}

Status CheckAttentionBackend(const DitConfig& config, const std::string& backend) {
  const auto heads = static_cast<int32_t>(config.num_attention_heads);
  attention::PlanSettings settings;
  settings.options = {.q_heads = heads,
                      .kv_heads = heads,
                      .head_dim = static_cast<int32_t>(config.attention_head_dim),
                      .softmax_scale = 1.0f};
  settings.max_sequences = 1;
  settings.max_segments = 2;
  settings.backend = backend;
  for (const std::string_view name : DitConfig::kAttentionBackends) {
    settings.admitted.emplace_back(name);
  }
  const Result<attention::Plan> plan = attention::Plan::Create(settings);
  return plan.ok() ? Status() : Status(plan.error());
}

// norm_out, whose modulation is (scale, shift) and not (shift, scale), then proj_out.
Status Dit::Project(const Run& run, const MatrixView& velocity) const {
  const ForwardContext& context = *run.context;
  const DitStreamWorkspace& image = run.workspace.image;
  const MatrixView modulation = image.modulation.Cols(0, 2 * config_.hidden());
  SEGUE_RETURN_IF_ERROR(norm_out_.Forward(run.workspace.time, modulation, context));
  kernels::RowTable scale = run.image.Modulation(kShift1);
  kernels::RowTable shift = run.image.Modulation(kScale1);
  SEGUE_RETURN_IF_ERROR(kernels::LayerNorm({.x = image.hidden,
                                            .y = image.normed,
                                            .eps = DitConfig::kNormEpsilon,
                                            .scale = scale,
                                            .shift = shift,
                                            .rounding = context.rounding},
                                           context.kernels));
  return proj_out_.Forward(image.normed, velocity, context);
}

Status Dit::Forward(const DitBatch& batch, const DitInputs& inputs, Arena& arena,
                    const ForwardContext& context) const {
  SEGUE_RETURN_IF_ERROR(CheckInputs(config_, batch, inputs));
  Run run;
  run.context = &context;
  run.workspace = DitWorkspace::LayOut(arena, config_, context.communicator->size(),
                                       batch.image_rows(), batch.text_rows(), batch.timesteps());
  SEGUE_RETURN_IF_ERROR(arena.Check());
  run.image = {&run.workspace.image, batch.image_timestep().data(), batch.image_position().data()};
  run.text = {&run.workspace.text, batch.text_timestep().data(), batch.text_position().data()};
  run.rotation = {
      .cos = batch.cos().data(), .sin = batch.sin().data(), .positions = batch.positions()};
  run.sequences = MakeSegments(batch, run.workspace, true);
  run.last_sequences = MakeSegments(batch, run.workspace, false);

  SEGUE_RETURN_IF_ERROR(Embed(run, batch, inputs));
  for (const Block& block : blocks_) {
    SEGUE_RETURN_IF_ERROR(RunBlock(run, block, &block == &blocks_.back()));
  }
  return Project(run, inputs.velocity);
}

}  // namespace segue::model
