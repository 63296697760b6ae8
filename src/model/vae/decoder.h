// The decoder of the picture autoencoder, for one frame.
//
// Source: diffusers 0.42, autoencoder_kl_qwenimage.py (QwenImageDecoder3d). Its causal 3-D
// convolutions pad time with zeros on the left, so the first and only frame meets the last temporal
// tap alone, and the upsamplers' time_conv is skipped: the decoder is a 2-D network, exactly.
// Pixels are rows and channels columns (NHWC).
//
// A residual block leaves its sum open: the map and what is to be added to it. The norm or the
// upsampler that comes next adds them on its way, which on a GPU saves a pass over memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/device.h"
#include "kernels/conv2d.h"
#include "kernels/product_library.h"
#include "model/layers/forward_context.h"
#include "model/vae/config.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

// A decoder runs in three blocks one behind the other, each as large as its largest feature map.
struct VaeWorkspace {
  // For latents of `height` x `width` pixels and maps of `type`.
  static VaeWorkspace LayOut(Arena& arena, const VaeConfig& config, int64_t height, int64_t width,
                             DType type = DType::kF32);

  void* data = nullptr;     // of 3 * block_bytes
  int64_t block_bytes = 0;  // a multiple of Arena::kAlignment
};

// Const after construction and, for a GPU, ReorderWeights; then any number of threads may run
// forwards, each in its own workspace.
class VaeDecoder {
 public:
  // Takes its weights from the reader (whose Finish() reports what is missing). Precondition: the
  // configuration is valid.
  VaeDecoder(const VaeConfig& config, WeightReader& reader);

  const VaeConfig& config() const { return config_; }

  // Device memory of the convolutions' weights in a GPU's order, bfloat16.
  int64_t ReorderedBytes() const;
  // For a GPU, once, when the weights are there: enqueues copies of the convolutions' weights in
  // the order that it reads them in, into `memory`, which outlives the decoder. The originals are
  // not read any more when the stream has passed. On the CPU there is nothing to do.
  Status ReorderWeights(DeviceMemory& memory, const kernels::Context& context);

  // The products of a GPU's forward of this size, for ProductLibrary::Warm.
  std::vector<kernels::ProductShape> Products(int64_t height, int64_t width) const;

  // latents [height * width, z_dim], of unit statistics undone (QwenImagePipeline multiplies by
  // latents_std and adds latents_mean); samples [64 * height * width, input_channels], nominally
  // in -1..1 but not clamped. Works in blocks of `arena` laid out as VaeWorkspace does. All of the
  // context's device and activation type. On a GPU it runs in the context's libraries and, once a
  // size has run, may be captured.
  Status Forward(const MatrixView& latents, int64_t height, int64_t width,
                 const MatrixView& samples, Arena& arena, const ForwardContext& context) const;

 private:
  struct Convolution {
    WeightView weight, bias;
    int64_t out_channels = 0;
    kernels::WeightOrder order = kernels::WeightOrder::kOutInTaps;
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
  // Calls visit(Convolution&) for each in decoding order.
  template <class Decoder, class Visit>
  static void VisitConvolutions(Decoder& decoder, const Visit& visit);

  Status RunResidual(const ResidualBlock& block, bool before_upsampler, Frame& frame) const;
  Status RunAttention(Frame& frame) const;
  Status RunUpsampler(const Convolution& convolution, Frame& frame) const;

  VaeConfig config_;
  Arena reordered_;  // of a GPU's weights
  Convolution post_quant_conv_, conv_in_;
  ResidualBlock mid_0_, mid_1_;
  WeightView attention_norm_;
  Convolution attention_qkv_, attention_proj_;
  std::vector<UpBlock> up_blocks_;
  WeightView norm_out_;
  Convolution conv_out_;
};

}  // namespace segue::model
