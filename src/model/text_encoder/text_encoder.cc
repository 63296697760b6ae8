#include "model/text_encoder/text_encoder.h"

#include <algorithm>
#include <numeric>

#include "device/transfer.h"
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

// Ids, positions and the rotation of every position, made by the host.
Status WriteTables(const TextEncoderConfig& config, Span<const float> inverse_frequencies,
                   Span<const TextSequence> sequences, const TextEncoderWorkspace& workspace,
                   const Stream& stream) {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;
  size_t longest = 0;
  for (const TextSequence& sequence : sequences) {
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    for (size_t i = 0; i < sequence.ids.size(); ++i) positions.push_back(static_cast<int32_t>(i));
    longest = std::max(longest, sequence.ids.size());
  }
  const auto pairs = static_cast<size_t>(config.head_dim() / 2);
  std::vector<float> cos(longest * pairs);
  std::vector<float> sin(longest * pairs);
  for (size_t position = 0; position < longest; ++position) {
    WriteRotation(static_cast<int64_t>(position), inverse_frequencies,
                  cos.data() + position * pairs, sin.data() + position * pairs);
  }
  const auto copy_in = [&stream](auto* to, const auto& from) {
    return CopyIn(to, from.data(), static_cast<int64_t>(from.size() * sizeof(from[0])), stream);
  };
  SEGUE_RETURN_IF_ERROR(copy_in(workspace.ids, ids));
  SEGUE_RETURN_IF_ERROR(copy_in(workspace.positions, positions));
  SEGUE_RETURN_IF_ERROR(copy_in(workspace.cos, cos));
  return copy_in(workspace.sin, sin);
}

}  // namespace

TextEncoderWorkspace TextEncoderWorkspace::LayOut(Arena& arena, const TextEncoderConfig& config,
                                                  const Placement& placement,
                                                  Span<const int64_t> lengths) {
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const int ranks = placement.ranks;
  const int64_t pairs = config.head_dim() / 2;
  const int64_t query = LocalQuery(config, ranks);
  const int64_t intermediate = config.intermediate_size / ranks;
  const auto take = [&](const char* name, int64_t cols) {
    return arena.TakeMatrix(name, rows, cols, placement.activation_type());
  };
  TextEncoderWorkspace workspace;
  workspace.ids = arena.Take<int32_t>("text ids", rows);
  workspace.positions = arena.Take<int32_t>("text positions", rows);
  workspace.cos = arena.Take<float>("text rotation", longest * pairs);
  workspace.sin = arena.Take<float>("text rotation", longest * pairs);
  workspace.hidden = take("text hidden", config.hidden_size);
  workspace.normed = take("text normed", config.hidden_size);
  workspace.qkv = take("text qkv", query + 2 * LocalKeyValue(config, ranks));
  workspace.attention = take("text attention", query);
  workspace.gate = take("text gate", intermediate);
  workspace.up = take("text up", intermediate);
  workspace.attention_plan = arena.TakeBytes(
      "text attention plan", TextAttention::WorkspaceBytes(config, placement, lengths));
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
    return RowParallelLinear(reader,
                             {.name = name + part,
                              .in_features = in,
                              .out_features = hidden,
                              .bias = false,
                              .few_rows = true},
                             communicator);
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

ProductShapes TextEncoder::Products(int64_t rows) const {
  ProductShapes shapes;
  const Layer& layer = layers_.front();  // they are alike
  layer.q_proj.AppendShapes(rows, shapes);
  layer.k_proj.AppendShapes(rows, shapes);
  layer.o_proj.AppendShapes(rows, shapes);
  layer.gate_proj.AppendShapes(rows, shapes);
  layer.down_proj.AppendShapes(rows, shapes);
  return shapes;
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
                             int64_t longest, const TextAttention& attention,
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
  SEGUE_RETURN_IF_ERROR(attention.Run(context));
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
  std::vector<int64_t> lengths;
  for (const TextSequence& sequence : sequences) {
    lengths.push_back(static_cast<int64_t>(sequence.ids.size()));
  }
  if (lengths.empty()) return {};
  const Stream& stream = context.kernels.stream;
  SEGUE_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(context));
  const auto workspace = TextEncoderWorkspace::LayOut(arena, config_, placement, lengths);
  SEGUE_RETURN_IF_ERROR(arena.Check());
  SEGUE_RETURN_IF_ERROR(WriteTables(config_, inverse_frequencies_, sequences, workspace, stream));
  SEGUE_ASSIGN_OR_RETURN(TextAttention attention,
                         TextAttention::Create(config_, placement.ranks, lengths, workspace.qkv,
                                               workspace.attention, stream));
  SEGUE_RETURN_IF_ERROR(attention.Prepare(workspace.attention_plan, lengths, stream));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());

  SEGUE_RETURN_IF_ERROR(kernels::Embedding(
      {.ids = workspace.ids, .table = embedding_, .y = workspace.hidden}, context.kernels));
  for (const Layer& layer : layers_) {
    SEGUE_RETURN_IF_ERROR(RunLayer(layer, workspace, longest, attention, context));
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
