#include "model/text_encoder/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/add.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "model/layers/rotation.h"

namespace segue::model {
namespace {

Error TextError(std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "encode prompt",
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

int64_t LocalQuery(const TextEncoderConfig& config, int ranks) {
  return config.num_attention_heads / ranks * config.head_dim();
}

int64_t LocalKeyValue(const TextEncoderConfig& config, int ranks) {
  return config.num_key_value_heads / ranks * config.head_dim();
}

// Ids, positions and the rotation of every position, written by the host.
void WriteTables(const TextEncoderConfig& config, Span<const float> inverse_frequencies,
                 Span<const TextSequence> sequences, int64_t longest,
                 const TextEncoderWorkspace& workspace) {
  int64_t row = 0;
  for (const TextSequence& sequence : sequences) {
    for (size_t i = 0; i < sequence.ids.size(); ++i, ++row) {
      workspace.ids[row] = sequence.ids[i];
      workspace.positions[row] = static_cast<int32_t>(i);
    }
  }
  const int64_t pairs = config.head_dim() / 2;
  for (int64_t position = 0; position < longest; ++position) {
    WriteRotation(position, inverse_frequencies, workspace.cos + position * pairs,
                  workspace.sin + position * pairs);
  }
}

// One segment a prompt: slices of the fused q | k | v rows.
std::vector<attention::Sequence> MakeSegments(const TextEncoderConfig& config, int ranks,
                                              Span<const TextSequence> sequences,
                                              const TextEncoderWorkspace& workspace) {
  const int64_t query = LocalQuery(config, ranks);
  const int64_t key_value = LocalKeyValue(config, ranks);
  std::vector<attention::Sequence> segments;
  int64_t row = 0;
  for (const TextSequence& sequence : sequences) {
    const auto rows = static_cast<int64_t>(sequence.ids.size());
    float* qkv = workspace.qkv.Row<float>(row);
    const int64_t stride = workspace.qkv.stride;
    segments.push_back({{{.q = {qkv, stride},
                          .k = {qkv + query, stride},
                          .v = {qkv + query + key_value, stride},
                          .o = {workspace.attention.Row<float>(row), workspace.attention.stride},
                          .q_rows = rows,
                          .kv_rows = rows}}});
    row += rows;
  }
  return segments;
}

}  // namespace

TextEncoderWorkspace TextEncoderWorkspace::LayOut(Arena& arena, const TextEncoderConfig& config,
                                                  int ranks, int64_t rows, int64_t longest) {
  const int64_t pairs = config.head_dim() / 2;
  const int64_t query = LocalQuery(config, ranks);
  const int64_t intermediate = config.intermediate_size / ranks;
  TextEncoderWorkspace workspace;
  workspace.ids = arena.Take<int32_t>("text ids", rows);
  workspace.positions = arena.Take<int32_t>("text positions", rows);
  workspace.cos = arena.Take<float>("text rotation", longest * pairs);
  workspace.sin = arena.Take<float>("text rotation", longest * pairs);
  workspace.hidden = arena.TakeMatrix("text hidden", rows, config.hidden_size);
  workspace.normed = arena.TakeMatrix("text normed", rows, config.hidden_size);
  workspace.qkv = arena.TakeMatrix("text qkv", rows, query + 2 * LocalKeyValue(config, ranks));
  workspace.attention = arena.TakeMatrix("text attention", rows, query);
  workspace.gate = arena.TakeMatrix("text gate", rows, intermediate);
  workspace.up = arena.TakeMatrix("text up", rows, intermediate);
  return workspace;
}

TextEncoder::TextEncoder(const TextEncoderConfig& config, WeightReader& reader,
                         const TextEncoderNames& names, const comm::Communicator& communicator)
    : config_(config),
      inverse_frequencies_(InverseFrequencies(config.rope_theta, config.head_dim())),
      embedding_(reader.Take(names.embedding, {config.vocab_size, config.hidden_size})) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(LoadLayer(config, reader, names.prefix + "layers." + std::to_string(i) + ".",
                                communicator));
  }
  final_norm_ = reader.Take(names.prefix + "norm.weight", {config.hidden_size});
}

TextEncoder::Layer TextEncoder::LoadLayer(const TextEncoderConfig& config, WeightReader& reader,
                                          const std::string& name,
                                          const comm::Communicator& communicator) {
  const int64_t hidden = config.hidden_size;
  const int64_t key_value = config.num_key_value_heads * config.head_dim();
  const int64_t intermediate = config.intermediate_size;
  const auto column = [&](const char* part, int64_t out, bool bias) {
    return ColumnParallelLinear(reader, {name + part, hidden, out, bias}, communicator);
  };
  const auto row = [&](const char* part, int64_t in) {
    return RowParallelLinear(reader, {name + part, in, hidden, false}, communicator);
  };
  return {.input_norm = reader.Take(name + "input_layernorm.weight", {hidden}),
          .q_proj = column("self_attn.q_proj", hidden, true),
          .k_proj = column("self_attn.k_proj", key_value, true),
          .v_proj = column("self_attn.v_proj", key_value, true),
          .o_proj = row("self_attn.o_proj", hidden),
          .post_attention_norm = reader.Take(name + "post_attention_layernorm.weight", {hidden}),
          .gate_proj = column("mlp.gate_proj", intermediate, false),
          .up_proj = column("mlp.up_proj", intermediate, false),
          .down_proj = row("mlp.down_proj", intermediate)};
}

Status TextEncoder::Check(Span<const TextSequence> sequences) const {
  for (const TextSequence& sequence : sequences) {
    const auto rows = static_cast<int64_t>(sequence.ids.size());
    if (rows < 1 || rows > config_.max_position_embeddings) {
      return TextError("prompt", std::to_string(rows) + " ids",
                       "1.." + std::to_string(config_.max_position_embeddings));
    }
    if (sequence.dropped < 0 || sequence.dropped > rows) {
      return TextError("rows to drop", std::to_string(sequence.dropped),
                       "0.." + std::to_string(rows));
    }
    for (const int32_t id : sequence.ids) {
      if (id < 0 || id >= config_.vocab_size) {
        return TextError("token id", std::to_string(id),
                         "0.." + std::to_string(config_.vocab_size - 1));
      }
    }
  }
  return {};
}

Status TextEncoder::Norm(const MatrixView& x, const WeightView& weight, const MatrixView& y,
                         const ForwardContext& context) const {
  return kernels::RmsNorm({.x = x,
                           .weight = weight,
                           .y = y,
                           .eps = static_cast<float>(config_.rms_norm_eps),
                           .rounding = context.rounding},
                          context.kernels);
}

Status TextEncoder::RunLayer(const Layer& layer, const TextEncoderWorkspace& workspace,
                             int64_t longest, Span<const attention::Sequence> segments,
                             const ForwardContext& context) const {
  const MatrixView& hidden = workspace.hidden;
  const MatrixView& normed = workspace.normed;
  const int64_t query = layer.q_proj.local_out_features();
  const int64_t key_value = layer.k_proj.local_out_features();
  const int64_t head_dim = config_.head_dim();
  const auto add_to_hidden = [&] {
    return kernels::Add({.a = hidden, .b = normed, .y = hidden, .rounding = context.rounding},
                        context.kernels);
  };

  SEGUE_RETURN_IF_ERROR(Norm(hidden, layer.input_norm, normed, context));
  SEGUE_RETURN_IF_ERROR(layer.q_proj.Forward(normed, workspace.qkv.Cols(0, query), context));
  SEGUE_RETURN_IF_ERROR(
      layer.k_proj.Forward(normed, workspace.qkv.Cols(query, key_value), context));
  SEGUE_RETURN_IF_ERROR(
      layer.v_proj.Forward(normed, workspace.qkv.Cols(query + key_value, key_value), context));
  // Query and key heads lie side by side and turn alike.
  SEGUE_RETURN_IF_ERROR(kernels::RopeHalf({.x = workspace.qkv.Cols(0, query + key_value),
                                           .head_dim = static_cast<int32_t>(head_dim),
                                           .rope = {.cos = workspace.cos,
                                                    .sin = workspace.sin,
                                                    .positions = longest,
                                                    .index = workspace.positions},
                                           .rounding = context.rounding},
                                          context.kernels));
  const attention::Options options = {
      .q_heads = static_cast<int32_t>(query / head_dim),
      .kv_heads = static_cast<int32_t>(key_value / head_dim),
      .head_dim = static_cast<int32_t>(head_dim),
      .softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
      .causal = true};
  SEGUE_RETURN_IF_ERROR(attention::Attention(
      {.options = options, .sequences = segments, .rounding = context.rounding}, context.kernels));
  SEGUE_RETURN_IF_ERROR(layer.o_proj.Forward(workspace.attention, normed, context));
  SEGUE_RETURN_IF_ERROR(add_to_hidden());

  SEGUE_RETURN_IF_ERROR(Norm(hidden, layer.post_attention_norm, normed, context));
  SEGUE_RETURN_IF_ERROR(layer.gate_proj.Forward(normed, workspace.gate, context));
  SEGUE_RETURN_IF_ERROR(layer.up_proj.Forward(normed, workspace.up, context));
  SEGUE_RETURN_IF_ERROR(kernels::SiluMul({.gate = workspace.gate,
                                          .up = workspace.up,
                                          .y = workspace.gate,
                                          .rounding = context.rounding},
                                         context.kernels));
  SEGUE_RETURN_IF_ERROR(layer.down_proj.Forward(workspace.gate, normed, context));
  return add_to_hidden();
}

Status TextEncoder::Forward(Span<const TextSequence> sequences, Arena& arena,
                            const ForwardContext& context) const {
  SEGUE_RETURN_IF_ERROR(Check(sequences));
  int64_t rows = 0;
  int64_t longest = 0;
  for (const TextSequence& sequence : sequences) {
    rows += static_cast<int64_t>(sequence.ids.size());
    longest = std::max(longest, static_cast<int64_t>(sequence.ids.size()));
  }
  if (rows == 0) return {};
  const int ranks = context.communicator->size();
  const auto workspace = TextEncoderWorkspace::LayOut(arena, config_, ranks, rows, longest);
  SEGUE_RETURN_IF_ERROR(arena.Check());
  WriteTables(config_, inverse_frequencies_, sequences, longest, workspace);
  const auto segments = MakeSegments(config_, ranks, sequences, workspace);

  SEGUE_RETURN_IF_ERROR(kernels::Embedding(
      {.ids = workspace.ids, .table = embedding_, .y = workspace.hidden}, context.kernels));
  for (const Layer& layer : layers_) {
    SEGUE_RETURN_IF_ERROR(RunLayer(layer, workspace, longest, segments, context));
  }
  int64_t row = 0;
  for (const TextSequence& sequence : sequences) {
    const auto count = static_cast<int64_t>(sequence.ids.size());
    SEGUE_RETURN_IF_ERROR(
        Norm(workspace.hidden.Rows(row + sequence.dropped, count - sequence.dropped), final_norm_,
             sequence.output, context));
    row += count;
  }
  return {};
}

}  // namespace segue::model
