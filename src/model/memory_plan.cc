#include "model/memory_plan.h"

#include <algorithm>
#include <vector>

#include "model/qwen_image.h"

namespace segue::model {

int64_t EncodeBytes(const ModelConfig& config, const Placement& placement,
                    Span<const int64_t> lengths, int64_t dropped) {
  int64_t rows = 0;
  for (const int64_t length : lengths) rows += length;
  const int64_t kept = rows - dropped * static_cast<int64_t>(lengths.size());
  Arena arena;
  Placement alone = placement;
  alone.ranks = 1;
  EncodeWorkspace::LayOut(arena, config, alone, kept);
  TextEncoderWorkspace::LayOut(arena, config.text_encoder, alone, lengths);
  return arena.peak_bytes();
}

int64_t DenoiseBytes(const ModelConfig& config, int ranks, int64_t image_rows, int64_t text_rows,
                     int64_t timesteps) {
  Arena arena;
  arena.TakeMatrix("velocity", image_rows, config.dit.in_channels);
  DitHostWorkspace::LayOut(arena, config.dit, ranks, image_rows, text_rows, timesteps);
  return arena.peak_bytes();
}

int64_t DecodeBytes(const ModelConfig& config, const Placement& placement, int64_t grid_height,
                    int64_t grid_width) {
  Arena arena;
  DecodeWorkspace::LayOut(arena, config, placement, grid_height, grid_width);
  VaeWorkspace::LayOut(arena, config.vae, 2 * grid_height, 2 * grid_width,
                       placement.activation_type());
  return arena.peak_bytes();
}

int64_t RequestBytes(const ModelConfig& config, const Placement& placement, int64_t image_rows,
                     Span<const int64_t> text_rows) {
  Arena arena;
  RequestBlocks::LayOut(arena, config, placement, image_rows, text_rows);
  return arena.peak_bytes();
}

int64_t ActivationPlan::peak() const {
  return request + std::max({text_encoder, transformer, vae});
}

ActivationPlan PlanActivations(const ModelConfig& config, const Placement& placement,
                               const PictureShape& picture) {
  const auto sequences = static_cast<size_t>(picture.sequences);
  const std::vector<int64_t> lengths(sequences, picture.text_rows + picture.dropped);
  const std::vector<int64_t> text_rows(sequences, picture.text_rows);
  const int64_t image_rows = picture.grid_height * picture.grid_width;
  return {.request = RequestBytes(config, placement, image_rows, text_rows),
          .text_encoder = EncodeBytes(config, placement, lengths, picture.dropped),
          .transformer = DenoiseBytes(config, placement.ranks, image_rows * picture.sequences,
                                      picture.text_rows * picture.sequences, 1),
          .vae = DecodeBytes(config, placement, picture.grid_height, picture.grid_width)};
}

}  // namespace segue::model
