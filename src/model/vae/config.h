// Sizes of the picture autoencoder, free of any file format.
#pragma once

#include <cstdint>
#include <vector>

#include "segue/status.h"

namespace segue::model {

// AutoencoderKLQwenImage's configuration (vae/config.json). The defaults are that class's own.
struct VaeConfig {
  int64_t base_dim = 96;
  int64_t z_dim = 16;
  std::vector<int64_t> dim_mult = {1, 2, 4, 4};
  int64_t num_res_blocks = 2;
  // The file spells it "temperal_downsample". In decoding order it is reversed: true makes an
  // up block's upsampler one with a time_conv (skipped for a single frame).
  std::vector<bool> temporal_downsample = {false, true, true};
  int64_t input_channels = 3;  // of a picture
  std::vector<float> latents_mean = {-0.7571f, -0.7089f, -0.9113f, 0.1075f, -0.1745f, 0.9653f,
                                     -0.1517f, 1.5508f,  0.4134f,  -.0715f, 0.5517f,  -0.3632f,
                                     -0.1922f, -0.9497f, 0.2503f,  -0.2921f};
  std::vector<float> latents_std = {2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f,
                                    2.6052f, 2.0743f, 3.2687f, 2.1526f, 2.8652f, 1.5579f,
                                    1.6382f, 1.1253f, 2.8251f, 1.9160f};

  // Pixels per latent, along each side: 2^(number of downsamplings).
  int64_t spatial_scale() const { return int64_t{1} << temporal_downsample.size(); }

  // Error unless sizes are positive and bounded, dim_mult has one entry more than
  // temporal_downsample, latents_mean and latents_std have z_dim finite entries (the latter
  // positive), and the picture has 3 channels and 8 pixels per latent (what the pipeline packs).
  Status Validate() const;
};

}  // namespace segue::model
