// The decoder of the picture autoencoder, for one frame.
//
// Source: diffusers 0.42, autoencoder_kl_qwenimage.py (QwenImageDecoder3d). Its causal 3-D
// convolutions pad time with zeros on the left, so the first and only frame meets the last temporal
// tap alone, and the upsamplers' time_conv is skipped: the decoder is a 2-D network, exactly.
// Pixels are rows and channels columns (NHWC).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "device/arena.h"
#include "model/layers/forward_context.h"
#include "model/vae/config.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

// A decoder runs in three blocks, each as large as its largest feature map.
struct VaeWorkspace {
  // For latents of `height` x `width` pixels.
  static VaeWorkspace LayOut(Arena& arena, const VaeConfig& config, int64_t height, int64_t width);

  std::array<float*, 3> blocks = {};
};

// Const after construction; any number of threads may run forwards, each in its own workspace.
class VaeDecoder {
 public:
  // Takes its weights from the reader (whose Finish() reports what is missing). Precondition: the
  // configuration is valid.
  VaeDecoder(const VaeConfig& config, WeightReader& reader);

  const VaeConfig& config() const { return config_; }

  // latents [height * width, z_dim], of unit statistics undone (QwenImagePipeline multiplies by
  // latents_std and adds latents_mean); samples [64 * height * width, input_channels], nominally
  // in -1..1 but not clamped. Works in blocks of `arena` laid out as VaeWorkspace does.
  Status Forward(const MatrixView& latents, int64_t height, int64_t width,
                 const MatrixView& samples, Arena& arena, const ForwardContext& context) const;

 private:
  struct Convolution {
    WeightView weight, bias;
    int64_t out_channels = 0;
  };
  struct ResidualBlock {
    WeightView norm_1, norm_2;
    Convolution conv_1, conv_2;
    std::optional<Convolution> shortcut;  // where the number of channels changes
  };
  struct UpBlock {
    std::vector<ResidualBlock> residuals;
    std::optional<Convolution> upsampler;
  };
  struct Frame;  // a forward's feature map and spare blocks

  static Convolution LoadConvolution(WeightReader& reader, const std::string& name,
                                     const Shape& shape);
  static ResidualBlock LoadResidual(WeightReader& reader, const std::string& name, int64_t in,
                                    int64_t out);
  void LoadUpBlocks(WeightReader& reader);

  Status RunResidual(const ResidualBlock& block, Frame& frame) const;
  Status RunAttention(Frame& frame) const;
  Status RunUpsampler(const Convolution& convolution, Frame& frame) const;

  VaeConfig config_;
  Convolution post_quant_conv_, conv_in_;
  ResidualBlock mid_0_, mid_1_;
  WeightView attention_norm_;
  Convolution attention_qkv_, attention_proj_;
  std::vector<UpBlock> up_blocks_;
  WeightView norm_out_;
  Convolution conv_out_;
};

}  // namespace segue::model
