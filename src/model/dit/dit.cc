#include "model/dit/dit.h"

#include <array>
#include <utility>

#include "kernels/activation.h"
#include "kernels/heads.h"
#include "kernels/rms_norm.h"
#include "kernels/timestep_embedding.h"
#include "model/layers/summed_norm.h"
#include "segue/attention_plan.h"

namespace segue::model {
namespace {

Error InputError(std::string argument, const Shape& got, const Shape& wanted) {
  return {.code = ErrorCode::kInternal,
          .operation = "run the transformer",
          .argument = std::move(argument),
          .got = got.ToString(),
          .wanted = wanted.ToString()};
}

Status CheckShape(std::string argument, const MatrixView& view, int64_t rows, int64_t cols) {
  if (view.rows == rows && view.cols == cols) return {};
  return InputError(std::move(argument), {view.rows, view.cols}, {rows, cols});
}

Status CheckInputs(const DitConfig& config, const DitBatch& batch, const DitInputs& inputs) {
  const auto sequences = static_cast<int64_t>(inputs.sequences.size());
  const auto wanted = static_cast<int64_t>(batch.sequences().size());
  if (sequences != wanted) return InputError("sequences", {sequences}, {wanted});
  const auto timesteps = static_cast<int64_t>(inputs.timesteps.size());
  if (timesteps != batch.timesteps()) {
    return InputError("timesteps", {timesteps}, {batch.timesteps()});
  }
  SEGUE_RETURN_IF_ERROR(
      CheckShape("velocity", inputs.velocity, batch.image_rows(), config.in_channels));
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    const std::string name = "sequence " + std::to_string(i);
    const DitSequence& sequence = batch.sequences()[i];
    SEGUE_RETURN_IF_ERROR(CheckShape(name + ": latents", inputs.sequences[i].latents,
                                     sequence.image_rows(), config.in_channels));
    SEGUE_RETURN_IF_ERROR(
        CheckShape(name + ": text", inputs.sequences[i].text, sequence.text_rows, config.hidden()));
  }
  return {};
}

Status Copy(const MatrixView& from, const MatrixView& to, const ForwardContext& context) {
  return kernels::Activate({.x = from, .y = to, .activation = kernels::Activation::kNone},
                           context.kernels);
}

}  // namespace

DitHostWorkspace DitHostWorkspace::LayOut(Arena& arena, const DitConfig& config, int ranks,
                                          int64_t image_rows, int64_t text_rows,
                                          int64_t timesteps) {
  DitHostWorkspace workspace;
  workspace.latents = arena.TakeMatrix("transformer latents", image_rows, config.in_channels);
  workspace.modulation =
      arena.TakeMatrix("transformer modulation", timesteps, config.modulation_width());
  workspace.time = DitTimeWorkspace::LayOut(arena, config, timesteps, DType::kF32);
  workspace.forward =
      DitWorkspace::LayOut(arena, config, ranks, image_rows, text_rows, DType::kF32);
  return workspace;
}

Dit::Dit(const DitConfig& config, WeightReader& reader, const comm::Communicator& communicator)
    : config_(config),
      img_in_(reader, {"img_in", config.in_channels, config.hidden()}),
      txt_norm_(reader.Take("txt_norm.weight", {config.joint_attention_dim})),
      txt_in_(reader, {"txt_in", config.joint_attention_dim, config.hidden()}),
      time_1_(reader, {.name = "time_text_embed.timestep_embedder.linear_1",
                       .in_features = DitConfig::kTimestepChannels,
                       .out_features = config.hidden(),
                       .group = WeightGroup::kModulation}),
      time_2_(reader, {.name = "time_text_embed.timestep_embedder.linear_2",
                       .in_features = config.hidden(),
                       .out_features = config.hidden(),
                       .group = WeightGroup::kModulation}),
      norm_out_(reader, {.name = "norm_out.linear",
                         .in_features = config.hidden(),
                         .out_features = 2 * config.hidden(),
                         .group = WeightGroup::kModulation}),
      proj_out_(reader, {"proj_out", config.hidden(), config.proj_channels()}) {
  constexpr StreamNames kImage = {"img_mod.1",    "attn.to_q",   "attn.to_k",   "attn.to_v",
                                  nullptr,        "attn.norm_q", "attn.norm_k", "attn.to_out.0",
                                  "img_mlp.net.", false};
  constexpr StreamNames kText = {"txt_mod.1",         "attn.add_q_proj",
                                 "attn.add_k_proj",   "attn.add_v_proj",
                                 "attn.to_added_qkv", "attn.norm_added_q",
                                 "attn.norm_added_k", "attn.to_add_out",
                                 "txt_mlp.net.",      true};
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
  const auto row = [&](const std::string& name, int64_t in, const comm::Communicator& ranks) {
    return RowParallelLinear(
        reader,
        {.name = block + name, .in_features = in, .out_features = hidden, .few_rows = names.text},
        ranks);
  };
  const auto norm = [&](const std::string& name) {
    return reader.Take(block + name + ".weight", {config.attention_head_dim});
  };
  const std::string mlp = names.mlp;
  static const comm::SingleRank kAlone;
  const bool whole = names.text && communicator.size() <= DitConfig::kMaxRanksOfWholeText;
  const comm::Communicator& mlp_ranks = whole ? kAlone : communicator;
  return {.modulation = ReplicatedLinear(reader, {.name = block + names.modulation,
                                                  .in_features = hidden,
                                                  .out_features = 6 * hidden,
                                                  .group = WeightGroup::kModulation}),
          .qkv_proj = ColumnParallelGroup(
              reader,
              {.names = {block + names.q, block + names.k, block + names.v},
               .merged_name = names.merged_qkv == nullptr ? "" : block + names.merged_qkv,
               .in_features = hidden,
               .out_features = hidden},
              communicator),
          .q_norm = norm(names.q_norm),
          .k_norm = norm(names.k_norm),
          .out_proj = row(names.out, hidden, communicator),
          .mlp_in = ColumnParallelLinear(
              reader, {block + mlp + "0.proj", hidden, config.mlp_hidden()}, mlp_ranks),
          .mlp_out = row(mlp + "2", config.mlp_hidden(), mlp_ranks)};
}

struct Dit::Stream {
  const DitStreamWorkspace* workspace = nullptr;
  const int32_t* row_modulation = nullptr;
  const int32_t* row_position = nullptr;
  bool text = false;
  int64_t modulation_begin = 0;  // of the block under way, in a row of the table
  // Of the branch that waits in workspace->normed to be added to the residual stream; absent: none.
  kernels::RowTable gate;
  // Where this rank's part of that branch is, until it is summed; no data: the branch is whole.
  MatrixView partial;
};

struct Dit::Pass {
  const DitForward* forward = nullptr;
  const ForwardContext* context = nullptr;
  Stream image, text;

  // A slice of the modulation, by row.
  kernels::RowTable Modulation(const Stream& stream, int64_t slice) const {
    const MatrixView& table = forward->modulation;
    const int64_t hidden = stream.workspace->hidden.cols;
    return {.data = table.Cols(stream.modulation_begin + slice * hidden, hidden).data,
            .rows = table.rows,
            .stride = table.stride,
            .index = stream.row_modulation};
  }
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

int64_t Dit::ModulationBegin(size_t block, bool text) const {
  return (static_cast<int64_t>(block) * 2 + (text ? 1 : 0)) * 6 * config_.hidden();
}

Status Dit::TabulateModulation(const float* timesteps, const MatrixView& table,
                               const DitTimeWorkspace& workspace,
                               const ForwardContext& context) const {
  SEGUE_RETURN_IF_ERROR(
      kernels::TimestepEmbedding({.timesteps = timesteps,
                                  .y = workspace.sinusoids,
                                  .scale = static_cast<float>(DitConfig::kTimestepScale),
                                  .rounding = context.rounding},
                                 context.kernels));
  SEGUE_RETURN_IF_ERROR(time_1_.Forward(workspace.sinusoids, workspace.time_hidden, context,
                                        kernels::Activation::kSilu));
  // Every reader of the embedding applies SiLU first.
  SEGUE_RETURN_IF_ERROR(
      time_2_.Forward(workspace.time_hidden, workspace.time, context, kernels::Activation::kSilu));
  const int64_t hidden = config_.hidden();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    // The last block's text stream ends at its keys and values: of its modulation only the first
    // shift and scale are read.
    const int64_t text_slices = i + 1 == blocks_.size() ? 2 : 6;
    SEGUE_RETURN_IF_ERROR(blocks_[i].image.modulation.Forward(
        workspace.time, table.Cols(ModulationBegin(i, false), 6 * hidden), context));
    SEGUE_RETURN_IF_ERROR(blocks_[i].text.modulation.Forward(
        workspace.time, table.Cols(ModulationBegin(i, true), text_slices * hidden), context));
  }
  return norm_out_.Forward(workspace.time,
                           table.Cols(ModulationBegin(blocks_.size(), false), 2 * hidden), context);
}

// Whether a stream's queries, keys and values are one product.
bool Dit::PacksHeads(bool text, bool packed, SiteSet gated) {
  return packed || (text && gated.Has(GatedSite::kTextProjections));
}

ProductShapes Dit::Products(int64_t image_rows, int64_t text_rows, bool packed,
                            SiteSet gated) const {
  ProductShapes shapes;
  img_in_.AppendShapes(image_rows, shapes);
  proj_out_.AppendShapes(image_rows, shapes);
  const bool gelu = gated.Has(GatedSite::kFeedForward);
  const auto append = [&](const StreamLayers& layers, int64_t rows, bool text) {
    layers.qkv_proj.AppendShapes(rows, 0, PacksHeads(text, packed, gated), shapes);
    layers.out_proj.AppendShapes(rows, shapes);
    layers.mlp_in.AppendShapes(rows, shapes, gelu);
    layers.mlp_out.AppendShapes(rows, shapes);
  };
  // Blocks are alike, but for the last one's text stream.
  append(blocks_.front().image, image_rows, false);
  append(blocks_.front().text, text_rows, true);
  blocks_.back().text.qkv_proj.AppendShapes(text_rows, 1, PacksHeads(true, packed, gated), shapes);
  return shapes;
}

ProductShapes Dit::TextProducts(int64_t text_rows) const {
  ProductShapes shapes;
  txt_in_.AppendShapes(text_rows, shapes);
  return shapes;
}

ProductShapes Dit::ModulationProducts(int64_t timesteps) const {
  ProductShapes shapes;
  time_1_.AppendShapes(timesteps, shapes);
  time_2_.AppendShapes(timesteps, shapes);
  blocks_.front().image.modulation.AppendShapes(timesteps, shapes);
  norm_out_.AppendShapes(timesteps, shapes);
  return shapes;
}

Status Dit::Normalise(const Pass& pass, Span<Stream* const> streams, ModulationSlice shift,
                      ModulationSlice scale) const {
  using Parts = std::array<kernels::ModulatedNormStream, kernels::kMaxNormStreams>;
  Parts whole, partial;
  size_t whole_count = 0, partial_count = 0;
  for (Stream* stream : streams) {
    const DitStreamWorkspace& workspace = *stream->workspace;
    const bool sums = stream->partial.data != nullptr;
    const MatrixView branch = sums ? stream->partial : workspace.normed;
    kernels::ModulatedNormStream& part = sums ? partial[partial_count++] : whole[whole_count++];
    part = {.branch = stream->gate.present() ? branch : MatrixView{},
            .gate = stream->gate,
            .h = workspace.hidden,
            .scale = pass.Modulation(*stream, scale),
            .shift = pass.Modulation(*stream, shift),
            .y = workspace.normed};
    stream->gate = {};
    stream->partial = {};
  }
  const auto params = [&](const Parts& parts, size_t count) {
    return kernels::ModulatedNormParams{.streams = {parts.data(), count},
                                        .eps = DitConfig::kNormEpsilon,
                                        .rounding = pass.context->RoundingAt(GatedSite::kNorms)};
  };
  if (partial_count > 0) {
    SEGUE_RETURN_IF_ERROR(SumAndNormalise(params(partial, partial_count), *pass.context));
  }
  if (whole_count == 0) return {};
  return kernels::ModulatedNorm(params(whole, whole_count), pass.context->kernels);
}

Status Dit::ProjectBranches(const Pass& pass, Span<const Projection> projections) const {
  std::array<comm::SumPart, comm::kMaxSumParts> sums;
  size_t count = 0;
  for (const Projection& projection : projections) {
    const MatrixView& normed = projection.stream->workspace->normed;
    if (projection.layer->sharded()) sums[count++].sum = normed;
  }
  pass.context->communicator->PlacePartials({sums.data(), count});
  count = 0;
  for (const Projection& projection : projections) {
    Stream& stream = *projection.stream;
    if (projection.layer->sharded()) stream.partial = sums[count++].partial;
    const MatrixView& y = projection.layer->sharded() ? stream.partial : stream.workspace->normed;
    SEGUE_RETURN_IF_ERROR(projection.layer->ForwardPartial(*projection.x, y, *pass.context));
  }
  return {};
}

Status Dit::ProjectHeads(const Pass& pass, const Stream& stream, const StreamLayers& layers,
                         DitQueries queries) const {
  const int64_t local = layers.qkv_proj.local_out_features();
  const int64_t skipped = queries == DitQueries::kImage && stream.text ? 1 : 0;
  return layers.qkv_proj.Forward(
      stream.workspace->normed, stream.workspace->qkv.Cols(skipped * local, (3 - skipped) * local),
      skipped, PacksHeads(stream.text, pass.context->packed_products, pass.context->gated),
      *pass.context);
}

Status Dit::NormaliseHeads(const Pass& pass, const Block& block, DitQueries queries) const {
  std::array<kernels::HeadsStream, kernels::kMaxHeadsStreams> parts;
  const auto part = [](const Stream& stream, const StreamLayers& layers, bool wanted) {
    const MatrixView& qkv = stream.workspace->qkv;
    const int64_t local = layers.qkv_proj.local_out_features();
    return kernels::HeadsStream{.q = wanted ? qkv.Cols(0, local) : MatrixView{},
                                .k = qkv.Cols(local, local),
                                .q_weight = layers.q_norm,
                                .k_weight = layers.k_norm,
                                .position = stream.row_position};
  };
  parts[0] = part(pass.image, block.image, true);
  parts[1] = part(pass.text, block.text, queries == DitQueries::kAll);
  const DitRows& rows = pass.forward->rows;
  return kernels::PrepareHeads(
      {.streams = parts,
       .head_dim = static_cast<int32_t>(config_.attention_head_dim),
       .eps = DitConfig::kNormEpsilon,
       .rope = {.cos = rows.cos, .sin = rows.sin, .positions = rows.positions},
       .rounding = pass.context->RoundingAt(GatedSite::kHeads)},
      pass.context->kernels);
}

Status Dit::FeedForward(const Pass& pass, Span<Stream* const> streams, const Block& block) const {
  const ForwardContext& context = *pass.context;
  const bool gated = context.gated.Has(GatedSite::kFeedForward);
  // The CPU's products end with the activation; a GPU runs one operation for all streams behind
  // them, whose input was rounded as the reference rounds it.
  const bool apart = !gated && context.kernels.stream.device() != DeviceKind::kCpu;
  std::array<kernels::ActivationParams, kernels::kMaxNormStreams> activations;
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamLayers& layers = streams[i]->text ? block.text : block.image;
    const DitStreamWorkspace& workspace = *streams[i]->workspace;
    const auto activation = apart ? kernels::Activation::kNone : kernels::Activation::kGeluTanh;
    SEGUE_RETURN_IF_ERROR(
        gated ? layers.mlp_in.ForwardWithGelu(workspace.normed, workspace.mlp, context)
              : layers.mlp_in.Forward(workspace.normed, workspace.mlp, context, activation));
    activations[i] = {.x = workspace.mlp,
                      .y = workspace.mlp,
                      .activation = kernels::Activation::kGeluTanh,
                      .rounding = context.rounding};
  }
  if (apart) {
    SEGUE_RETURN_IF_ERROR(kernels::ActivateStreams(
        {.streams = {activations.data(), streams.size()}}, context.kernels));
  }
  std::array<Projection, kernels::kMaxNormStreams> outputs;
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamLayers& layers = streams[i]->text ? block.text : block.image;
    outputs[i] = {streams[i], &layers.mlp_out, &streams[i]->workspace->mlp};
  }
  return ProjectBranches(pass, {outputs.data(), streams.size()});
}

Status Dit::FinishBlock(Pass& pass, const Block& block, bool last) const {
  const std::array<Stream*, 2> both = {&pass.image, &pass.text};
  const Span<Stream* const> streams(both.data(), last ? 1 : 2);
  std::array<Projection, kernels::kMaxNormStreams> outputs;
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamLayers& layers = streams[i]->text ? block.text : block.image;
    outputs[i] = {streams[i], &layers.out_proj, &streams[i]->workspace->attention};
    streams[i]->gate = pass.Modulation(*streams[i], kGate1);
  }
  SEGUE_RETURN_IF_ERROR(ProjectBranches(pass, {outputs.data(), streams.size()}));
  SEGUE_RETURN_IF_ERROR(Normalise(pass, streams, kShift2, kScale2));
  SEGUE_RETURN_IF_ERROR(FeedForward(pass, streams, block));
  for (Stream* stream : streams) stream->gate = pass.Modulation(*stream, kGate2);
  return {};
}

Status Dit::RunBlock(Pass& pass, size_t index) const {
  const Block& block = blocks_[index];
  const bool last = index + 1 == blocks_.size();
  const DitQueries queries = last ? DitQueries::kImage : DitQueries::kAll;
  const std::array<Stream*, 2> streams = {&pass.image, &pass.text};
  for (Stream* stream : streams) stream->modulation_begin = ModulationBegin(index, stream->text);
  SEGUE_RETURN_IF_ERROR(Normalise(pass, streams, kShift1, kScale1));
  SEGUE_RETURN_IF_ERROR(ProjectHeads(pass, pass.image, block.image, queries));
  SEGUE_RETURN_IF_ERROR(ProjectHeads(pass, pass.text, block.text, queries));
  SEGUE_RETURN_IF_ERROR(NormaliseHeads(pass, block, queries));
  SEGUE_RETURN_IF_ERROR(pass.forward->attention->Run(queries, *pass.context));
  return FinishBlock(pass, block, last);
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
Status Dit::Project(Pass& pass, const MatrixView& velocity) const {
  pass.image.modulation_begin = ModulationBegin(blocks_.size(), false);
  const std::array<Stream*, 1> image = {&pass.image};
  constexpr auto kScale = kShift1;
  constexpr auto kShift = kScale1;
  SEGUE_RETURN_IF_ERROR(Normalise(pass, image, kShift, kScale));
  return proj_out_.Forward(pass.image.workspace->normed, velocity, *pass.context);
}

Status Dit::CheckForward(const DitForward& forward) const {
  const int64_t image_rows = forward.workspace.image.hidden.rows;
  const int64_t text_rows = forward.workspace.text.hidden.rows;
  SEGUE_RETURN_IF_ERROR(CheckShape("latents", forward.latents, image_rows, config_.in_channels));
  SEGUE_RETURN_IF_ERROR(CheckShape("text", forward.text, text_rows, config_.hidden()));
  SEGUE_RETURN_IF_ERROR(CheckShape("modulation", forward.modulation, forward.modulation.rows,
                                   config_.modulation_width()));
  return CheckShape("velocity", forward.velocity, image_rows, config_.in_channels);
}

Status Dit::Run(const DitForward& forward, const ForwardContext& context) const {
  SEGUE_RETURN_IF_ERROR(CheckForward(forward));
  const DitRows& rows = forward.rows;
  Pass pass = {.forward = &forward, .context = &context};
  pass.image = {.workspace = &forward.workspace.image,
                .row_modulation = rows.image_modulation,
                .row_position = rows.image_position};
  pass.text = {.workspace = &forward.workspace.text,
               .row_modulation = rows.text_modulation,
               .row_position = rows.text_position,
               .text = true};
  SEGUE_RETURN_IF_ERROR(img_in_.Forward(forward.latents, forward.workspace.image.hidden, context));
  if (forward.text.data != forward.workspace.text.hidden.data) {
    SEGUE_RETURN_IF_ERROR(Copy(forward.text, forward.workspace.text.hidden, context));
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    SEGUE_RETURN_IF_ERROR(RunBlock(pass, block));
  }
  SEGUE_RETURN_IF_ERROR(Project(pass, forward.velocity));
  return context.communicator->EndRun(context.kernels);
}

Status Dit::Forward(const DitBatch& batch, const DitInputs& inputs, Arena& arena,
                    const ForwardContext& context) const {
  SEGUE_RETURN_IF_ERROR(CheckInputs(config_, batch, inputs));
  const auto workspace =
      DitHostWorkspace::LayOut(arena, config_, context.communicator->size(), batch.image_rows(),
                               batch.text_rows(), batch.timesteps());
  SEGUE_RETURN_IF_ERROR(arena.Check());
  const MatrixView& text = workspace.forward.text.hidden;
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    const DitSequence& sequence = batch.sequences()[i];
    SEGUE_RETURN_IF_ERROR(Copy(inputs.sequences[i].latents,
                               workspace.latents.Rows(batch.image_begin(i), sequence.image_rows()),
                               context));
    SEGUE_RETURN_IF_ERROR(Copy(inputs.sequences[i].text,
                               text.Rows(batch.text_begin(i), sequence.text_rows), context));
  }
  SEGUE_RETURN_IF_ERROR(
      TabulateModulation(inputs.timesteps.data(), workspace.modulation, workspace.time, context));
  const HostDitAttention attention(config_, batch, workspace.forward);
  return Run({.latents = workspace.latents,
              .text = text,
              .modulation = workspace.modulation,
              .rows = {.image_modulation = batch.image_timestep().data(),
                       .text_modulation = batch.text_timestep().data(),
                       .cos = batch.cos().data(),
                       .sin = batch.sin().data(),
                       .positions = batch.positions(),
                       .image_position = batch.image_position().data(),
                       .text_position = batch.text_position().data()},
              .attention = &attention,
              .workspace = workspace.forward,
              .velocity = inputs.velocity},
             context);
}

}  // namespace segue::model
