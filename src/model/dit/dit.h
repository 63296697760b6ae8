// The diffusion transformer: dual-stream blocks over the packed rows of any number of sequences.
//
// Source: diffusers 0.42, transformer_qwenimage.py (QwenImageTransformer2DModel). What is exact but
// not computed here: nothing reads the last block's text stream, so that block uses text only for
// keys and values; no row is padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "kernels/modulated_norm.h"
#include "kernels/row_table.h"
#include "model/dit/attention.h"
#include "model/dit/batch.h"
#include "model/dit/config.h"
#include "model/dit/workspace.h"
#include "model/layers/forward_context.h"
#include "model/layers/linear.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

// Where packed rows find what they share with others, in the context's memory.
struct DitRows {
  // [image rows], [text rows]: the row of the modulation table that each row uses.
  const int32_t* image_modulation = nullptr;
  const int32_t* text_modulation = nullptr;
  // The rotation's table, [positions, head_dim / 2] float32, and the row of it that each row uses.
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t positions = 0;
  const int32_t* image_position = nullptr;
  const int32_t* text_position = nullptr;
};

// A forward over packed rows, all of it in the context's memory. What it points to may change
// between two forwards recorded once; rows of a sequence that its attention leaves out are computed
// and reach no other row.
struct DitForward {
  MatrixView latents;     // [image rows, in_channels]
  MatrixView text;        // [text rows, hidden]: from EncodeText
  MatrixView modulation;  // [timesteps, config.modulation_width()]: from TabulateModulation
  DitRows rows;
  const DitAttention* attention = nullptr;
  DitWorkspace workspace;
  MatrixView velocity;  // [image rows, in_channels], written
};

// What a forward on the host reads of one sequence.
struct DitSequenceInput {
  MatrixView latents;  // [image rows, in_channels]
  MatrixView text;     // [text rows, hidden]: from EncodeText
};

struct DitInputs {
  Span<const DitSequenceInput> sequences;  // in the batch's order
  Span<const float> timesteps;             // sigma of every timestep index, in 0..1
  MatrixView velocity;                     // [all image rows, in_channels], written
};

// Everything a forward on the host works in.
struct DitHostWorkspace {
  static DitHostWorkspace LayOut(Arena& arena, const DitConfig& config, int ranks,
                                 int64_t image_rows, int64_t text_rows, int64_t timesteps);

  MatrixView latents;     // [image rows, in_channels]: of all sequences
  MatrixView modulation;  // [timesteps, modulation_width()]
  DitTimeWorkspace time;
  DitWorkspace forward;
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

  // Everything of a forward that follows from its timesteps alone: shift, scale and gate of every
  // block and stream, and of the last norm. timesteps [n]: sigma, in 0..1, in the context's memory;
  // table [n, config.modulation_width()], written; rows may lie apart. A row's bytes depend on its
  // own timestep alone, so that rows can be kept. Reads the weights of WeightGroup::kModulation,
  // and nothing else does.
  Status TabulateModulation(const float* timesteps, const MatrixView& table,
                            const DitTimeWorkspace& workspace, const ForwardContext& context) const;

  // The products of Run (`packed`, `gated`: as ForwardContext has them), of EncodeText and of
  // TabulateModulation.
  ProductShapes Products(int64_t image_rows, int64_t text_rows, bool packed,
                         SiteSet gated = {}) const;
  ProductShapes TextProducts(int64_t text_rows) const;
  ProductShapes ModulationProducts(int64_t timesteps) const;

  // Why a site cannot be gated in forwards of this context, or would change nothing; empty: it can.
  // Asked of every block and stream, so that a site is gated in all of them or in none. Host only.
  std::string Refuses(GatedSite site, const ForwardContext& context) const;

  // The velocity of every image row. Enqueues work and allocates nothing on a device.
  // Errors: shapes that do not fit together.
  Status Run(const DitForward& forward, const ForwardContext& context) const;

  // The same on the host, from timesteps and separate sequences. Works in blocks of `arena` laid
  // out as DitHostWorkspace does and allocates nothing but lists of a few entries a sequence.
  // Errors: inputs that do not fit the batch, an arena that is too small.
  Status Forward(const DitBatch& batch, const DitInputs& inputs, Arena& arena,
                 const ForwardContext& context) const;

 private:
  // One stream's half of a block.
  struct StreamLayers {
    ReplicatedLinear modulation;
    ColumnParallelGroup qkv_proj;
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
    const char *modulation, *q, *k, *v, *merged_qkv, *q_norm, *k_norm, *out, *mlp;
    bool text;
  };
  // Slices of a block's modulation, each `hidden` wide, in the reference's order.
  enum ModulationSlice : int64_t { kShift1, kScale1, kGate1, kShift2, kScale2, kGate2 };
  struct Pass;    // one forward under way
  struct Stream;  // one stream of it
  struct Projection {
    Stream* stream;
    const RowParallelLinear* layer;
    const MatrixView* x;
  };

  static StreamLayers LoadStream(const DitConfig& config, WeightReader& reader,
                                 const std::string& block, const StreamNames& names,
                                 const comm::Communicator& communicator);
  Status CheckForward(const DitForward& forward) const;
  static bool PacksHeads(bool text, bool packed, SiteSet gated);
  std::string RefusesGelu(const ForwardContext& context) const;
  std::string RefusesPackedText(const ForwardContext& context) const;
  // Where a block's modulation of a stream begins in a row of the table.
  int64_t ModulationBegin(size_t block, bool text) const;
  // hidden += gate * branch where a branch is waiting, summed over the ranks where this rank has a
  // part of it, then normed = LN(hidden) * (1 + scale) + shift, of these streams.
  Status Normalise(const Pass& pass, Span<Stream* const> streams, ModulationSlice shift,
                   ModulationSlice scale) const;
  // A row-parallel layer of every stream that it is called with: their sums wait together.
  Status ProjectBranches(const Pass& pass, Span<const Projection> projections) const;
  // Queries (if wanted), keys and values of a stream's rows.
  Status ProjectHeads(const Pass& pass, const Stream& stream, const StreamLayers& layers,
                      DitQueries queries) const;
  Status NormaliseHeads(const Pass& pass, const Block& block, DitQueries queries) const;
  // What follows attention: output projections and feed-forward networks.
  Status FinishBlock(Pass& pass, const Block& block, bool last) const;
  Status FeedForward(const Pass& pass, Span<Stream* const> streams, const Block& block) const;
  Status RunBlock(Pass& pass, size_t block) const;
  Status Project(Pass& pass, const MatrixView& velocity) const;

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
