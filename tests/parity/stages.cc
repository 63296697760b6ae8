#include "parity/stages.h"

#include <gtest/gtest.h>

#include <utility>

#include "model/memory_plan.h"

namespace segue::parity {
namespace {

bool Succeeded(const Status& status) {
  if (status.ok()) return true;
  ADD_FAILURE() << status.error().Message();
  return false;
}

Arena ArenaOf(int64_t bytes) {
  auto arena = Arena::Create(HostMemory(), bytes);
  if (!arena.ok()) {
    ADD_FAILURE() << arena.error().Message();
    return Arena();
  }
  return std::move(arena).value();
}

MatrixView View(std::vector<float>& values, int64_t cols) {
  return ContiguousMatrix(values.data(), static_cast<int64_t>(values.size()) / cols, cols);
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
  auto loaded = model::QwenImage::Load(stages->checkpoint_, stages->communicator_, stages->store_);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.error().Message();
    return nullptr;
  }
  stages->model_ = std::move(loaded).value();
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
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& prompt : prompts) {
    auto encoded = tokenizer_.EncodePrompt(prompt);
    if (!encoded.ok()) {
      ADD_FAILURE() << encoded.error().Message();
      return {};
    }
    ids.push_back(std::move(encoded->ids));
  }
  return EncodeIds(ids, model::kTemplatePrefixIds);
}

std::vector<std::vector<float>> Stages::EncodeIds(Span<const std::vector<int32_t>> ids,
                                                  int64_t dropped) {
  const model::ModelConfig& config = model_->config();
  std::vector<int64_t> lengths;
  std::vector<std::vector<float>> embeddings;
  std::vector<std::vector<float>> text;
  for (const std::vector<int32_t>& prompt : ids) {
    lengths.push_back(static_cast<int64_t>(prompt.size()));
    const int64_t rows = lengths.back() - dropped;
    embeddings.emplace_back(static_cast<size_t>(rows * config.dit.joint_attention_dim));
    text.emplace_back(static_cast<size_t>(rows * config.dit.hidden()));
  }
  std::vector<model::PromptInput> inputs;
  for (size_t i = 0; i < ids.size(); ++i) {
    inputs.push_back({.ids = ids[i],
                      .dropped = dropped,
                      .text = View(text[i], config.dit.hidden()),
                      .embeddings = embeddings[i].data()});
  }
  Arena arena = ArenaOf(model::EncodeBytes(config, 1, lengths, dropped));
  if (!Succeeded(model_->Encode(inputs, arena, Context()))) return {};
  return embeddings;
}

std::vector<std::vector<float>> Stages::Velocities(Span<const SequenceInput> sequences) {
  const model::DitConfig& config = model_->config().dit;
  std::vector<model::DitSequence> described;
  std::vector<float> timesteps;
  std::vector<SequenceInput> owned(sequences.begin(), sequences.end());
  std::vector<std::vector<float>> text(owned.size());
  std::vector<model::DitSequenceInput> inputs;
  for (size_t i = 0; i < owned.size(); ++i) {
    const MatrixView embeddings = View(owned[i].text, config.joint_attention_dim);
    described.push_back({.text_rows = embeddings.rows,
                         .grid_height = owned[i].grid_height,
                         .grid_width = owned[i].grid_width,
                         .timestep = static_cast<int32_t>(i)});
    timesteps.push_back(owned[i].timestep);
    text[i].resize(static_cast<size_t>(embeddings.rows * config.hidden()));
    inputs.push_back({.latents = View(owned[i].latents, config.in_channels),
                      .text = View(text[i], config.hidden())});
    if (!Succeeded(model_->dit().EncodeText(embeddings, inputs[i].text, Context()))) return {};
  }
  const auto batch = model::DitBatch::Create(config, described);
  if (!batch.ok()) {
    ADD_FAILURE() << batch.error().Message();
    return {};
  }
  std::vector<float> velocity(static_cast<size_t>(batch->image_rows() * config.in_channels));
  Arena arena = ArenaOf(model::DenoiseBytes(model_->config(), 1, batch->image_rows(),
                                            batch->text_rows(), batch->timesteps()));
  if (!Succeeded(model_->dit().Forward(*batch,
                                       {.sequences = inputs,
                                        .timesteps = timesteps,
                                        .velocity = View(velocity, config.in_channels)},
                                       arena, Context()))) {
    return {};
  }
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < described.size(); ++i) {
    const auto begin = velocity.begin() + batch->image_begin(i) * config.in_channels;
    outputs.emplace_back(begin, begin + described[i].image_rows() * config.in_channels);
  }
  return outputs;
}

DecodedPicture Stages::Decode(const std::vector<float>& latents, int width, int height) {
  const model::ModelConfig& config = model_->config();
  std::vector<float> tokens = latents;
  DecodedPicture picture;
  picture.samples.resize(static_cast<size_t>(width) * height * 3);
  picture.pixels.resize(picture.samples.size());
  bool all_finite = false;
  Arena arena = ArenaOf(model::DecodeBytes(config, 1, height / 16, width / 16));
  const Status decoded = model_->Decode({.latents = View(tokens, config.dit.in_channels),
                                         .grid_height = height / 16,
                                         .grid_width = width / 16,
                                         .pixels = picture.pixels.data(),
                                         .samples = picture.samples.data(),
                                         .all_finite = &all_finite},
                                        arena, Context());
  if (!Succeeded(decoded)) return {};
  EXPECT_TRUE(all_finite);
  return picture;
}

}  // namespace segue::parity
