#include "parity/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "kernels/latents.h"
#include "kernels/pixels.h"

namespace segue::parity {
namespace {

bool Succeeded(const Status& status) {
  if (status.ok()) return true;
  ADD_FAILURE() << status.error().Message();
  return false;
}

// An arena that holds what `lay_out` takes from a counting one.
template <typename LayOut>
Arena ArenaFor(const LayOut& lay_out) {
  Arena counting;
  lay_out(counting);
  auto arena = Arena::Create(HostMemory(), counting.peak_bytes());
  if (!arena.ok()) {
    ADD_FAILURE() << arena.error().Message();
    return Arena();
  }
  return std::move(arena).value();
}

MatrixView View(std::vector<float>& values, int64_t cols) {
  return ContiguousMatrix(values.data(), static_cast<int64_t>(values.size()) / cols, cols);
}

// Rows [begin, begin + count) of `cols` columns.
std::vector<float> Slice(const std::vector<float>& values, int64_t begin, int64_t count,
                         int64_t cols) {
  return {values.begin() + begin * cols, values.begin() + (begin + count) * cols};
}

}  // namespace

std::vector<SequenceInput> RecordedSequences(const Golden& golden, int b,
                                             const model::DitConfig& config) {
  std::vector<SequenceInput> sequences;
  const std::string batch = std::to_string(b);
  for (int s = 0; s < golden.Int(batch + ".sequences"); ++s) {
    const std::string name = batch + "." + std::to_string(s);
    const std::vector<int32_t> grid = golden.Ints(name + ".grid");
    if (grid.size() != 2) {
      ADD_FAILURE() << name << ".grid has " << grid.size() << " values";
      return {};
    }
    const auto seed = static_cast<uint32_t>(golden.Int(name + ".seed"));
    sequences.push_back(
        {.grid_height = grid[0],
         .grid_width = grid[1],
         .timestep = golden.Float(name + ".timestep"),
         .latents = NoiseStream(seed, int64_t{grid[0]} * grid[1] * config.in_channels),
         .text =
             NoiseStream(seed + 1, golden.Int(name + ".text_rows") * config.joint_attention_dim)});
  }
  return sequences;
}

std::unique_ptr<Stages> Stages::Load(const GoldenModel& model, const StageOptions& options) {
  auto checkpoint = model::Checkpoint::Open(model.directory);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.error().Message();
    return nullptr;
  }
  auto tokenizer = model::Tokenizer::Load(checkpoint->tokenizer_directory());
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.error().Message();
    return nullptr;
  }
  std::unique_ptr<Stages> stages(
      new Stages(std::move(checkpoint).value(), std::move(tokenizer).value(), options));
  const model::Checkpoint& opened = stages->checkpoint_;
  model::WeightReader text_reader(opened.text_encoder());
  stages->text_encoder_ = std::make_unique<model::TextEncoder>(
      opened.text_encoder_config(), text_reader, opened.text_prefix(), opened.text_embedding_name(),
      stages->communicator_);
  model::WeightReader dit_reader(opened.transformer());
  stages->dit_ =
      std::make_unique<model::Dit>(opened.dit_config(), dit_reader, stages->communicator_);
  model::WeightReader vae_reader(opened.vae());
  stages->vae_ = std::make_unique<model::VaeDecoder>(opened.vae_config(), vae_reader);
  for (const model::WeightReader* reader : {&text_reader, &dit_reader, &vae_reader}) {
    if (!Succeeded(reader->Finish())) return nullptr;
  }
  return stages;
}

Stages::Stages(model::Checkpoint checkpoint, model::Tokenizer tokenizer,
               const StageOptions& options)
    : checkpoint_(std::move(checkpoint)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      pool_(options.threads) {}

model::ForwardContext Stages::Context() {
  return {.kernels = {.stream = Stream::Cpu(pool_), .reference_only = options_.reference_kernels},
          .rounding = options_.bf16_rounding ? kernels::Rounding::kBF16 : kernels::Rounding::kNone,
          .communicator = &communicator_};
}

std::vector<std::vector<float>> Stages::EncodePrompts(Span<const std::string> prompts) {
  const int64_t width = checkpoint_.text_encoder_config().hidden_size;
  std::vector<model::PromptIds> encoded;
  std::vector<std::vector<float>> outputs;
  int64_t rows = 0;
  int64_t longest = 0;
  for (const std::string& prompt : prompts) {
    auto ids = tokenizer_.EncodePrompt(prompt);
    if (!ids.ok()) {
      ADD_FAILURE() << ids.error().Message();
      return {};
    }
    rows += static_cast<int64_t>(ids->ids.size());
    longest = std::max(longest, static_cast<int64_t>(ids->ids.size()));
    outputs.emplace_back(static_cast<size_t>(ids->rows * width));
    encoded.push_back(std::move(ids).value());
  }
  std::vector<model::TextSequence> sequences;
  for (size_t i = 0; i < encoded.size(); ++i) {
    sequences.push_back(
        {.ids = encoded[i].ids, .dropped = encoded[i].dropped, .output = View(outputs[i], width)});
  }
  Arena arena = ArenaFor([&](Arena& counting) {
    model::TextEncoderWorkspace::LayOut(counting, checkpoint_.text_encoder_config(), 1, rows,
                                        longest);
  });
  if (!Succeeded(text_encoder_->Forward(sequences, arena, Context()))) return {};
  return outputs;
}

std::vector<std::vector<float>> Stages::Velocities(Span<const SequenceInput> sequences) {
  const model::DitConfig& config = checkpoint_.dit_config();
  std::vector<model::DitSequence> described;
  std::vector<float> latents;
  std::vector<float> embeddings;
  std::vector<float> timesteps;
  for (const SequenceInput& input : sequences) {
    described.push_back(
        {.text_rows = static_cast<int64_t>(input.text.size()) / config.joint_attention_dim,
         .grid_height = input.grid_height,
         .grid_width = input.grid_width,
         .timestep = static_cast<int32_t>(timesteps.size())});
    timesteps.push_back(input.timestep);
    latents.insert(latents.end(), input.latents.begin(), input.latents.end());
    embeddings.insert(embeddings.end(), input.text.begin(), input.text.end());
  }
  const auto batch = model::DitBatch::Create(config, described);
  if (!batch.ok()) {
    ADD_FAILURE() << batch.error().Message();
    return {};
  }
  std::vector<float> text(static_cast<size_t>(batch->text_rows() * config.hidden()));
  std::vector<float> velocity(latents.size());
  if (!Succeeded(dit_->EncodeText(View(embeddings, config.joint_attention_dim),
                                  View(text, config.hidden()), Context()))) {
    return {};
  }
  Arena arena = ArenaFor([&](Arena& counting) {
    model::DitWorkspace::LayOut(counting, config, 1, batch->image_rows(), batch->text_rows(),
                                batch->timesteps());
  });
  const model::DitInputs inputs = {.latents = View(latents, config.in_channels),
                                   .text = View(text, config.hidden()),
                                   .timesteps = timesteps,
                                   .velocity = View(velocity, config.in_channels)};
  if (!Succeeded(dit_->Forward(*batch, inputs, arena, Context()))) return {};
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < described.size(); ++i) {
    outputs.push_back(
        Slice(velocity, batch->image_begin(i), described[i].image_rows(), config.in_channels));
  }
  return outputs;
}

DecodedPicture Stages::Decode(const std::vector<float>& latents, int width, int height) {
  const model::VaeConfig& config = checkpoint_.vae_config();
  const model::ForwardContext context = Context();
  const int64_t grid_height = height / 16;
  const int64_t grid_width = width / 16;
  std::vector<float> tokens = latents;
  std::vector<float> grid(latents.size());
  if (!Succeeded(kernels::UnpackLatents({.tokens = View(tokens, 4 * config.z_dim),
                                         .grid_height = grid_height,
                                         .grid_width = grid_width,
                                         .mean = config.latents_mean.data(),
                                         .std = config.latents_std.data(),
                                         .grid = View(grid, config.z_dim),
                                         .rounding = context.rounding},
                                        context.kernels))) {
    return {};
  }
  DecodedPicture picture;
  picture.samples.resize(static_cast<size_t>(width) * height * 3);
  picture.pixels.resize(picture.samples.size());
  Arena arena = ArenaFor([&](Arena& counting) {
    model::VaeWorkspace::LayOut(counting, config, 2 * grid_height, 2 * grid_width);
  });
  if (!Succeeded(vae_->Forward(View(grid, config.z_dim), 2 * grid_height, 2 * grid_width,
                               View(picture.samples, 3), arena, context)) ||
      !Succeeded(kernels::Pixels({.x = View(picture.samples, 3),
                                  .pixels = picture.pixels.data(),
                                  .rounding = context.rounding},
                                 context.kernels))) {
    return {};
  }
  return picture;
}

}  // namespace segue::parity
