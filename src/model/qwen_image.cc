#include "model/qwen_image.h"

#include <algorithm>
#include <string>

#include "device/transfer.h"
#include "kernels/finite.h"
#include "kernels/latents.h"
#include "kernels/pixels.h"

namespace segue::model {
namespace {

// Heads are dealt out whole, and with them the hidden units of the feed-forward networks.
Status CheckRanks(const DitConfig& config, int ranks) {
  if (config.num_attention_heads % ranks == 0) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "load model",
               .argument = "transformer: num_attention_heads",
               .got = std::to_string(config.num_attention_heads),
               .wanted = "a multiple of the " + std::to_string(ranks) + " ranks"};
}

// Of the networks that one rank runs: nothing is summed.
const comm::SingleRank kAlone;

ForwardContext Alone(const ForwardContext& context) {
  ForwardContext alone = context;
  alone.communicator = &kAlone;
  return alone;
}

}  // namespace

RequestBlocks RequestBlocks::LayOut(Arena& arena, const ModelConfig& config,
                                    const Placement& placement, int64_t image_rows,
                                    Span<const int64_t> text_rows) {
  RequestBlocks blocks;
  blocks.latents =
      arena.TakeMatrix("latents", image_rows, config.dit.in_channels, placement.activation_type());
  for (const int64_t rows : text_rows) {
    blocks.text.push_back(
        arena.TakeMatrix("text rows", rows, config.dit.hidden(), placement.activation_type()));
  }
  return blocks;
}

EncodeWorkspace EncodeWorkspace::LayOut(Arena& arena, const ModelConfig& config,
                                        const Placement& placement, int64_t kept_rows) {
  return {.embeddings =
              arena.TakeMatrix("prompt embeddings", kept_rows, config.dit.joint_attention_dim,
                               placement.activation_type())};
}

DecodeWorkspace DecodeWorkspace::LayOut(Arena& arena, const ModelConfig& config,
                                        const Placement& placement, int64_t grid_height,
                                        int64_t grid_width) {
  const int64_t latent_pixels = 4 * grid_height * grid_width;
  const int64_t scale = config.vae.spatial_scale();
  const int64_t pixels = latent_pixels * scale * scale;
  const DType dtype = placement.activation_type();
  DecodeWorkspace workspace;
  workspace.grid = arena.TakeMatrix("latent pixels", latent_pixels, config.vae.z_dim, dtype);
  workspace.samples = arena.TakeMatrix("decoded samples", pixels, config.vae.input_channels, dtype);
  if (placement.device == DeviceKind::kCpu) return workspace;
  workspace.pixels = arena.Take<uint8_t>("pixels", pixels * config.vae.input_channels);
  workspace.all_finite = arena.Take<bool>("whether samples are finite", 1);
  return workspace;
}

Result<std::unique_ptr<QwenImage>> QwenImage::Load(const Checkpoint& checkpoint,
                                                   const comm::Communicator& communicator,
                                                   WeightStore& store, Networks networks) {
  std::unique_ptr<QwenImage> model(new QwenImage());
  model->config_ = {.dit = checkpoint.dit_config(),
                    .text_encoder = checkpoint.text_encoder_config(),
                    .vae = checkpoint.vae_config()};
  SEGUE_RETURN_IF_ERROR(CheckRanks(model->config_.dit, communicator.size()));

  if (networks == Networks::kAll) {
    WeightReader text(checkpoint.text_encoder(), store);
    model->text_encoder_ = std::make_unique<TextEncoder>(
        model->config_.text_encoder, text,
        TextEncoderNames{checkpoint.text_prefix(), checkpoint.text_embedding_name()}, kAlone);
    SEGUE_RETURN_IF_ERROR(text.Finish());
  }
  WeightReader transformer(checkpoint.transformer(), store);
  model->dit_ = std::make_unique<Dit>(model->config_.dit, transformer, communicator);
  SEGUE_RETURN_IF_ERROR(transformer.Finish());
  if (networks == Networks::kTransformer) return model;
  WeightReader vae(checkpoint.vae(), store);
  model->vae_ = std::make_unique<VaeDecoder>(model->config_.vae, vae);
  SEGUE_RETURN_IF_ERROR(vae.Finish());
  return model;
}

Status QwenImage::Encode(Span<const PromptInput> prompts, Arena& arena,
                         const ForwardContext& ranks_context) const {
  const ForwardContext context = Alone(ranks_context);
  int64_t kept = 0;
  for (const PromptInput& prompt : prompts) kept += prompt.text.rows;
  SEGUE_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(context));
  const EncodeWorkspace workspace = EncodeWorkspace::LayOut(arena, config_, placement, kept);
  SEGUE_RETURN_IF_ERROR(arena.Check());

  std::vector<TextSequence> sequences;
  int64_t row = 0;
  for (const PromptInput& prompt : prompts) {
    sequences.push_back({.ids = prompt.ids,
                         .dropped = prompt.dropped,
                         .output = workspace.embeddings.Rows(row, prompt.text.rows)});
    row += prompt.text.rows;
  }
  SEGUE_RETURN_IF_ERROR(text_encoder_->Forward(sequences, arena, context));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const MatrixView& embeddings = sequences[i].output;
    if (prompts[i].embeddings != nullptr) {
      SEGUE_ASSIGN_OR_RETURN(const std::vector<float> values,
                             ReadMatrix(embeddings, context.kernels.stream));
      std::copy(values.begin(), values.end(), prompts[i].embeddings);
    }
    SEGUE_RETURN_IF_ERROR(dit_->EncodeText(embeddings, prompts[i].text, context));
  }
  return {};
}

Status QwenImage::Decode(const DecodeInput& input, Arena& arena,
                         const ForwardContext& ranks_context) const {
  const ForwardContext context = Alone(ranks_context);
  SEGUE_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(context));
  const DecodeWorkspace workspace =
      DecodeWorkspace::LayOut(arena, config_, placement, input.grid_height, input.grid_width);
  SEGUE_RETURN_IF_ERROR(arena.Check());
  SEGUE_RETURN_IF_ERROR(kernels::UnpackLatents({.tokens = input.latents,
                                                .grid_height = input.grid_height,
                                                .grid_width = input.grid_width,
                                                .mean = config_.vae.latents_mean.data(),
                                                .std = config_.vae.latents_std.data(),
                                                .grid = workspace.grid,
                                                .rounding = context.rounding},
                                               context.kernels));
  SEGUE_RETURN_IF_ERROR(vae_->Forward(workspace.grid, 2 * input.grid_height, 2 * input.grid_width,
                                      workspace.samples, arena, context));
  return TakeOut(input, workspace, context);
}

// Samples to pixels and to what the caller asked for besides.
Status QwenImage::TakeOut(const DecodeInput& input, const DecodeWorkspace& workspace,
                          const ForwardContext& context) const {
  const Stream& stream = context.kernels.stream;
  const bool on_host = workspace.pixels == nullptr;
  uint8_t* pixels = on_host ? input.pixels : workspace.pixels;
  bool* all_finite = on_host ? input.all_finite : workspace.all_finite;
  SEGUE_RETURN_IF_ERROR(
      kernels::Finite({.x = workspace.samples, .all_finite = all_finite}, context.kernels));
  SEGUE_RETURN_IF_ERROR(kernels::Pixels(
      {.x = workspace.samples, .pixels = pixels, .rounding = context.rounding}, context.kernels));
  if (input.samples != nullptr) {
    SEGUE_ASSIGN_OR_RETURN(const std::vector<float> samples, ReadMatrix(workspace.samples, stream));
    std::transform(samples.begin(), samples.end(), input.samples,
                   [](float value) { return std::clamp(value, -1.0f, 1.0f); });
  }
  if (on_host) return {};
  SEGUE_RETURN_IF_ERROR(CopyOut(input.all_finite, all_finite, sizeof(bool), stream));
  return CopyOut(input.pixels, pixels, workspace.samples.rows * workspace.samples.cols, stream);
}

}  // namespace segue::model
