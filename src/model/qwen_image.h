// Qwen-Image: a text encoder, a diffusion transformer and a picture decoder, put together.
//
// Source: diffusers 0.42, QwenImagePipeline. A second model of this family is another such class
// beside this one, over its own network folders.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/span.h"
#include "comm/communicator.h"
#include "device/arena.h"
#include "model/dit/dit.h"
#include "model/layers/forward_context.h"
#include "model/layers/placement.h"
#include "model/model_config.h"
#include "model/text_encoder/text_encoder.h"
#include "model/vae/decoder.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"
#include "segue/status.h"

namespace segue::model {

// What a request keeps from submission to its picture.
struct RequestBlocks {
  // `text_rows` of every branch: the prompt's, then the negative prompt's if there is one.
  static RequestBlocks LayOut(Arena& arena, const ModelConfig& config, const Placement& placement,
                              int64_t image_rows, Span<const int64_t> text_rows);

  MatrixView latents;            // [image_rows, in_channels]
  std::vector<MatrixView> text;  // of every branch, [text rows, transformer hidden]
};

// Blocks of Encode beside the text encoder's own.
struct EncodeWorkspace {
  static EncodeWorkspace LayOut(Arena& arena, const ModelConfig& config, const Placement& placement,
                                int64_t kept_rows);

  MatrixView embeddings;  // [kept rows, joint_attention_dim]
};

// Blocks of Decode beside the decoder's own.
struct DecodeWorkspace {
  static DecodeWorkspace LayOut(Arena& arena, const ModelConfig& config, const Placement& placement,
                                int64_t grid_height, int64_t grid_width);

  MatrixView grid;     // [latent pixels, z_dim]
  MatrixView samples;  // [picture pixels, 3]
  // Of a GPU's memory, before they are copied out; null on the host, where the caller's are used.
  uint8_t* pixels = nullptr;  // [picture pixels, 3]
  bool* all_finite = nullptr;
};

struct PromptInput {
  Span<const int32_t> ids;  // template included
  int64_t dropped = 0;      // leading rows that the transformer does not see
  MatrixView text;          // [ids.size() - dropped, hidden], written: the transformer's text rows
  float* embeddings = nullptr;  // written if not null: [ids.size() - dropped, joint_attention_dim]
};

struct DecodeInput {
  MatrixView latents;  // [grid_height * grid_width, in_channels]: packed
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  // Host memory, whichever device decodes.
  uint8_t* pixels = nullptr;   // [16 * grid_height, 16 * grid_width, 3], written
  float* samples = nullptr;    // written if not null: the same before the conversion, in -1..1
  bool* all_finite = nullptr;  // written: whether every sample was a number
};

// The networks of a model that a rank has.
enum class Networks : uint8_t {
  kAll,
  kTransformer,  // neither encodes nor decodes
};

// Const after loading and, for a GPU, ReorderWeights; then any number of threads may use it, each
// with its own arenas.
class QwenImage {
 public:
  // Checks and views every weight; reads none. The transformer alone is dealt out to the
  // communicator's ranks: the text encoder is a hundredth of a picture's time and its heads need
  // not divide as the transformer's do, the decoder has one picture to make, so that one rank runs
  // both and the others hold neither. Errors name tensors that are missing or of another shape, and
  // heads that the group's size does not divide. Precondition: `checkpoint`, `communicator` and
  // `store` outlive the model.
  static Result<std::unique_ptr<QwenImage>> Load(const Checkpoint& checkpoint,
                                                 const comm::Communicator& communicator,
                                                 WeightStore& store,
                                                 Networks networks = Networks::kAll);

  // See VaeDecoder::ReorderWeights.
  Status ReorderWeights(DeviceMemory& memory, const kernels::Context& context) {
    return vae_ == nullptr ? Status() : vae_->ReorderWeights(memory, context);
  }

  const ModelConfig& config() const { return config_; }
  const Dit& dit() const { return *dit_; }
  // Precondition of both: the rank has all networks.
  const TextEncoder& text_encoder() const { return *text_encoder_; }
  const VaeDecoder& vae() const { return *vae_; }

  // Encodes prompts together and makes the transformer's text rows of each. Precondition of this
  // and of Decode: the rank has all networks.
  Status Encode(Span<const PromptInput> prompts, Arena& arena, const ForwardContext& context) const;

  // Latents to pixels: undoes packing and the latents' statistics, decodes, converts to 8 bits.
  Status Decode(const DecodeInput& input, Arena& arena, const ForwardContext& context) const;

 private:
  QwenImage() = default;
  Status TakeOut(const DecodeInput& input, const DecodeWorkspace& workspace,
                 const ForwardContext& context) const;

  ModelConfig config_;
  std::unique_ptr<const TextEncoder> text_encoder_;
  std::unique_ptr<const Dit> dit_;
  std::unique_ptr<VaeDecoder> vae_;
};

}  // namespace segue::model
