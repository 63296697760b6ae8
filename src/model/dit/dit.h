// The diffusion transformer: dual-stream blocks over the packed rows of any number of sequences.
//
// Source: diffusers 0.42, transformer_qwenimage.py (QwenImageTransformer2DModel). What is exact but
// not computed here: nothing reads the last block's text stream, so that block uses text only for
// keys and values; no row is padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "base/span.h"
#include "device/arena.h"
#include "kernels/row_table.h"
#include "model/dit/batch.h"
#include "model/dit/config.h"
#include "model/layers/forward_context.h"
#include "model/layers/linear.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

// The blocks a stream (text or image) of a forward works in.
struct DitStreamWorkspace {
  MatrixView hidden;  // [rows, hidden]: the residual stream
  MatrixView normed;  // [rows, hidden]
  // One block of memory, used twice: [rows, q | k | v] with the attention output [rows, local
  // hidden] behind it, and later the [rows, local mlp_hidden] of the feed-forward network.
  MatrixView qkv;
  MatrixView attention;
  MatrixView mlp;
  MatrixView modulation;  // [timesteps, 6 * hidden]
};

// Everything a forward works in.
struct DitWorkspace {
  static DitWorkspace LayOut(Arena& arena, const DitConfig& config, int ranks, int64_t image_rows,
                             int64_t text_rows, int64_t timesteps);

  MatrixView latents;  // [image rows, in_channels]: of all sequences
  DitStreamWorkspace image;
  DitStreamWorkspace text;
  MatrixView sinusoids;    // [timesteps, kTimestepChannels]
  MatrixView time_hidden;  // [timesteps, hidden]
  MatrixView time;         // [timesteps, hidden]: SiLU of the timestep embedding
};

// What a forward reads of one sequence.
struct DitSequenceInput {
  MatrixView latents;  // [image rows, in_channels]
  MatrixView text;     // [text rows, hidden]: from EncodeText
};

struct DitInputs {
  Span<const DitSequenceInput> sequences;  // in the batch's order
  Span<const float> timesteps;             // sigma of every timestep index, in 0..1
  MatrixView velocity;                     // [all image rows, in_channels], written
};

// Whether the transformer's attention can run on this back end alone. Errors: there is no such back
// end; the network does not admit it (DitConfig::kAttentionBackends); it cannot serve these heads
// on the CPU, with the reason.
Status CheckAttentionBackend(const DitConfig& config, const std::string& backend);

// Const after construction; any number of threads may run forwards, each in its own workspace.
class Dit {
 public:
  // Takes its weights from the reader (whose Finish() reports what is missing). Precondition: the
  // configuration is valid and the group's size divides num_attention_heads.
  Dit(const DitConfig& config, WeightReader& reader, const comm::Communicator& communicator);

  const DitConfig& config() const { return config_; }

  // The text stream's first value, txt_in(txt_norm(embeddings)): constant over the steps of a
  // request. embeddings [rows, joint_attention_dim] are overwritten; text [rows, hidden].
  Status EncodeText(const MatrixView& embeddings, const MatrixView& text,
                    const ForwardContext& context) const;

  // The velocity of every image row. Works in blocks of `arena` laid out as DitWorkspace does and
  // allocates nothing but lists of a few entries a sequence.
  // Errors: inputs that do not fit the batch, an arena that is too small.
  Status Forward(const DitBatch& batch, const DitInputs& inputs, Arena& arena,
                 const ForwardContext& context) const;

 private:
  // One stream's half of a block.
  struct StreamLayers {
    ReplicatedLinear modulation;
    ColumnParallelLinear q_proj, k_proj, v_proj;
    WeightView q_norm, k_norm;
    RowParallelLinear out_proj;
    ColumnParallelLinear mlp_in;
    RowParallelLinear mlp_out;
  };
  struct Block {
    StreamLayers image, text;
  };
  // Names of one stream's tensors within a block, in the order of StreamLayers.
  struct StreamNames {
    const char *modulation, *q, *k, *v, *q_norm, *k_norm, *out, *mlp;
  };
  // Slices of a block's modulation, each `hidden` wide, in the reference's order.
  enum ModulationSlice : int64_t { kShift1, kScale1, kGate1, kShift2, kScale2, kGate2 };
  struct Run;     // one forward: workspace, streams, segments, context
  struct Stream;  // one stream of a forward

  static StreamLayers LoadStream(const DitConfig& config, WeightReader& reader,
                                 const std::string& block, const StreamNames& names,
                                 const comm::Communicator& communicator);
  // First values of both streams, and the timestep embedding.
  Status Embed(const Run& run, const DitBatch& batch, const DitInputs& inputs) const;
  // normed = LN(hidden) * (1 + scale) + shift, by the row's timestep.
  Status Modulate(const Stream& stream, ModulationSlice shift, ModulationSlice scale,
                  const ForwardContext& context) const;
  // hidden += gate * normed, by the row's timestep.
  Status AddGated(const Stream& stream, ModulationSlice gate, const ForwardContext& context) const;
  // Queries (if wanted), keys and values of a stream's rows, normalised and turned.
  Status ProjectHeads(const Run& run, const Stream& stream, const StreamLayers& layers,
                      bool queries) const;
  // What follows attention in a stream: output projection and feed-forward network.
  Status FinishStream(const Stream& stream, const StreamLayers& layers,
                      const ForwardContext& context) const;
  Status RunBlock(const Run& run, const Block& block, bool last) const;
  Status Project(const Run& run, const MatrixView& velocity) const;

  DitConfig config_;
  ReplicatedLinear img_in_;
  WeightView txt_norm_;
  ReplicatedLinear txt_in_;
  ReplicatedLinear time_1_, time_2_;
  std::vector<Block> blocks_;
  ReplicatedLinear norm_out_;
  ReplicatedLinear proj_out_;
};

}  // namespace segue::model
