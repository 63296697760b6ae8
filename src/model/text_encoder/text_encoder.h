// The text encoder: the language part of Qwen2.5-VL, run once over whole prompts.
//
// Source: transformers 5, modeling_qwen2_5_vl.py (Qwen2_5_VLTextModel). With text alone the three
// mrope sections carry equal positions, so the rotation is the plain half-split one over positions
// 0, 1, ... from the first token of the prompt's template.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "model/layers/forward_context.h"
#include "model/layers/linear.h"
#include "model/layers/placement.h"
#include "model/text_encoder/attention.h"
#include "model/text_encoder/config.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

// One prompt of a packed forward.
struct TextSequence {
  Span<const int32_t> ids;
  int64_t dropped = 0;  // leading rows that are not wanted
  MatrixView output;    // [ids.size() - dropped, hidden_size], written
};

// The blocks a forward over packed prompts works in.
struct TextEncoderWorkspace {
  // `lengths`: ids of each prompt, at least 1.
  static TextEncoderWorkspace LayOut(Arena& arena, const TextEncoderConfig& config,
                                     const Placement& placement, Span<const int64_t> lengths);

  int32_t* ids = nullptr;        // [rows]
  int32_t* positions = nullptr;  // [rows]
  float* cos = nullptr;          // [longest, head_dim / 2]
  float* sin = nullptr;
  MatrixView hidden;               // [rows, hidden_size]
  MatrixView normed;               // [rows, hidden_size]
  MatrixView qkv;                  // [rows, q | k | v]
  MatrixView attention;            // [rows, q]
  MatrixView gate;                 // [rows, intermediate_size]
  MatrixView up;                   // [rows, intermediate_size]
  void* attention_plan = nullptr;  // TextAttention::WorkspaceBytes
};

// How a checkpoint names its tensors.
struct TextEncoderNames {
  std::string prefix;     // precedes "layers.0..." and "norm.weight"
  std::string embedding;  // the token embedding
};

// Const after construction; any number of threads may run forwards, each in its own workspace.
class TextEncoder {
 public:
  // Takes its weights from the reader (whose Finish() reports what is missing). Precondition: the
  // configuration is valid and the group's size divides both head counts and intermediate_size.
  TextEncoder(const TextEncoderConfig& config, WeightReader& reader, const TextEncoderNames& names,
              const comm::Communicator& communicator);

  const TextEncoderConfig& config() const { return config_; }

  // The products of a forward over so many rows.
  ProductShapes Products(int64_t rows) const;

  // Writes the final-norm hidden states of every sequence's kept rows. All rows of all prompts go
  // through each layer together; a prompt sees itself only. Works in blocks of `arena` laid out as
  // TextEncoderWorkspace does. Errors: an id outside the vocabulary, a prompt that is empty or
  // longer than max_position_embeddings, an arena that is too small.
  Status Forward(Span<const TextSequence> sequences, Arena& arena,
                 const ForwardContext& context) const;

 private:
  struct Layer {
    WeightView input_norm;
    ColumnParallelLinear q_proj, k_proj, v_proj;
    RowParallelLinear o_proj;
    WeightView post_attention_norm;
    ColumnParallelLinear gate_proj, up_proj;
    RowParallelLinear down_proj;
  };

  static Layer LoadLayer(const TextEncoderConfig& config, WeightReader& reader,
                         const std::string& name, const comm::Communicator& communicator);
  Status Check(Span<const TextSequence> sequences) const;
  Status RunLayer(const Layer& layer, const TextEncoderWorkspace& workspace, int64_t longest,
                  const TextAttention& attention, const ForwardContext& context) const;
  Status Norm(const MatrixView& x, const WeightView& weight, const MatrixView& y,
              const ForwardContext& context) const;

  TextEncoderConfig config_;
  std::vector<float> inverse_frequencies_;
  WeightView embedding_;
  std::vector<Layer> layers_;
  WeightView final_norm_;
};

}  // namespace segue::model
