// Sizes of the diffusion transformer, free of any file format.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "segue/status.h"

namespace segue::model {

// QwenImageTransformer2DModel's configuration (transformer/config.json). The defaults are that
// class's own: a key absent from the file means them.
struct DitConfig {
  int64_t num_layers = 60;
  int64_t num_attention_heads = 24;
  int64_t attention_head_dim = 128;
  int64_t joint_attention_dim = 3584;  // width of the text embeddings
  int64_t in_channels = 64;            // of a packed latent row
  int64_t out_channels = 16;           // latent channels before packing
  int64_t patch_size = 2;
  // Head dimensions that rotate with a row's frame, height and width position.
  std::array<int64_t, 3> axes_dims_rope = {16, 56, 56};

  // Constants of the class, not of the file.
  static constexpr double kRopeTheta = 10000.0;
  static constexpr int64_t kTimestepChannels = 256;  // sinusoidal, before the first linear layer
  static constexpr double kTimestepScale = 1000.0;   // timesteps arrive in 0..1
  static constexpr float kNormEpsilon = 1e-6f;       // every LayerNorm and RMSNorm
  static constexpr int64_t kMlpRatio = 4;

  // Attention back ends that the network admits: those that are held to float64.
  static constexpr std::array<std::string_view, 5> kAttentionBackends = {"sm90", "cudnn", "cuda",
                                                                         "cpu", "ref"};

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
  int64_t mlp_hidden() const { return kMlpRatio * hidden(); }
  // Up to so many ranks each computes all of text's feed-forward network: its few rows cost less
  // than a third sum a block.
  static constexpr int kMaxRanksOfWholeText = 2;
  // Hidden units of a stream's feed-forward network that one of so many ranks computes.
  int64_t local_mlp_hidden(bool text, int ranks) const {
    return text && ranks <= kMaxRanksOfWholeText ? mlp_hidden() : mlp_hidden() / ranks;
  }
  // Of one timestep: 6 slices a block and stream, then the last norm's scale and shift.
  int64_t modulation_width() const { return (12 * num_layers + 2) * hidden(); }
  // Rows of the last projection: patch_size^2 * out_channels.
  int64_t proj_channels() const { return patch_size * patch_size * out_channels; }

  // Error (kInvalidArgument, or kUnsupported for sizes the class could have and the engine has
  // not) unless every size is positive and within bounds that keep products of three of them in
  // 63 bits, axes_dims_rope are even and add up to attention_head_dim, patch_size is 2 (the
  // pipeline packs 2x2) and proj_channels() == in_channels (a velocity has a latent's shape).
  Status Validate() const;
};

}  // namespace segue::model
