#include "model/vae/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/channel_norm.h"
#include "kernels/conv2d.h"

namespace segue::model {
namespace {

// Channels of every up block, in decoding order.
std::vector<int64_t> UpBlockChannels(const VaeConfig& config) {
  std::vector<int64_t> channels;
  for (auto factor = config.dim_mult.rbegin(); factor != config.dim_mult.rend(); ++factor) {
    channels.push_back(config.base_dim * *factor);
  }
  return channels;
}

// Elements of the largest map a block must hold: the feature maps themselves, and the attention's
// fused q | k | v.
int64_t LargestMap(const VaeConfig& config, int64_t height, int64_t width) {
  const std::vector<int64_t> channels = UpBlockChannels(config);
  int64_t pixels = height * width;
  int64_t largest = pixels * std::max(3 * channels[0], config.z_dim);
  int64_t in = channels[0];
  for (size_t i = 0; i < channels.size(); ++i) {
    largest = std::max(largest, pixels * std::max(in, channels[i]));
    if (i + 1 == channels.size()) break;
    pixels *= 4;
    in = channels[i] / 2;
  }
  return largest;
}

}  // namespace

VaeWorkspace VaeWorkspace::LayOut(Arena& arena, const VaeConfig& config, int64_t height,
                                  int64_t width) {
  const int64_t elements = LargestMap(config, height, width);
  VaeWorkspace workspace;
  for (float*& block : workspace.blocks) block = arena.Take<float>("decoder map", elements);
  return workspace;
}

VaeDecoder::VaeDecoder(const VaeConfig& config, WeightReader& reader) : config_(config) {
  const int64_t z = config.z_dim;
  const int64_t top = UpBlockChannels(config).front();
  post_quant_conv_ = LoadConvolution(reader, "post_quant_conv", {z, z, 1, 1, 1});
  conv_in_ = LoadConvolution(reader, "decoder.conv_in", {top, z, 3, 3, 3});
  const std::string mid = "decoder.mid_block.";
  mid_0_ = LoadResidual(reader, mid + "resnets.0", top, top);
  attention_norm_ = reader.Take(mid + "attentions.0.norm.gamma", {top, 1, 1});
  attention_qkv_ = LoadConvolution(reader, mid + "attentions.0.to_qkv", {3 * top, top, 1, 1});
  attention_proj_ = LoadConvolution(reader, mid + "attentions.0.proj", {top, top, 1, 1});
  mid_1_ = LoadResidual(reader, mid + "resnets.1", top, top);
  LoadUpBlocks(reader);
  norm_out_ =
      reader.Take("decoder.norm_out.gamma", {config.base_dim * config.dim_mult[0], 1, 1, 1});
  conv_out_ =
      LoadConvolution(reader, "decoder.conv_out",
                      {config.input_channels, config.base_dim * config.dim_mult[0], 3, 3, 3});
}

VaeDecoder::Convolution VaeDecoder::LoadConvolution(WeightReader& reader, const std::string& name,
                                                    const Shape& shape) {
  return {.weight = reader.Take(name + ".weight", shape),
          .bias = reader.Take(name + ".bias", {shape[0]}),
          .out_channels = shape[0]};
}

VaeDecoder::ResidualBlock VaeDecoder::LoadResidual(WeightReader& reader, const std::string& name,
                                                   int64_t in, int64_t out) {
  ResidualBlock block;
  block.norm_1 = reader.Take(name + ".norm1.gamma", {in, 1, 1, 1});
  block.conv_1 = LoadConvolution(reader, name + ".conv1", {out, in, 3, 3, 3});
  block.norm_2 = reader.Take(name + ".norm2.gamma", {out, 1, 1, 1});
  block.conv_2 = LoadConvolution(reader, name + ".conv2", {out, out, 3, 3, 3});
  if (in != out) {
    block.shortcut = LoadConvolution(reader, name + ".conv_shortcut", {out, in, 1, 1, 1});
  }
  return block;
}

void VaeDecoder::LoadUpBlocks(WeightReader& reader) {
  const std::vector<int64_t> channels = UpBlockChannels(config_);
  int64_t in = channels.front();
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    UpBlock block;
    for (int64_t r = 0; r <= config_.num_res_blocks; ++r) {
      block.residuals.push_back(
          LoadResidual(reader, name + ".resnets." + std::to_string(r), in, channels[i]));
      in = channels[i];
    }
    if (i + 1 < channels.size()) {
      block.upsampler =
          LoadConvolution(reader, name + ".upsamplers.0.resample.1", {in / 2, in, 3, 3});
      in /= 2;
    }
    up_blocks_.push_back(std::move(block));
  }
}

// The feature map lies in blocks[0]; the other two are spare.
struct VaeDecoder::Frame {
  std::array<float*, 3> blocks = {};
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  const ForwardContext* context = nullptr;

  int64_t pixels() const { return height * width; }
  MatrixView Map(size_t block, int64_t columns) const {
    return ContiguousMatrix(blocks[block], pixels(), columns);
  }
  MatrixView map() const { return Map(0, channels); }

  Status Normalise(const MatrixView& x, const WeightView& gamma, const MatrixView& y,
                   bool silu) const {
    return kernels::ChannelNorm(
        {.x = x, .gamma = gamma, .y = y, .silu = silu, .rounding = context->rounding},
        context->kernels);
  }
  Status Convolve(const Convolution& convolution, const MatrixView& x, const MatrixView& y,
                  const MatrixView& residual = {}, bool upsample = false) const {
    return kernels::Conv2d({.x = x,
                            .height = height,
                            .width = width,
                            .weight = convolution.weight,
                            .bias = convolution.bias,
                            .upsample = upsample,
                            .residual = residual,
                            .y = y,
                            .rounding = context->rounding},
                           context->kernels);
  }
};

Status VaeDecoder::RunResidual(const ResidualBlock& block, Frame& frame) const {
  const int64_t out = block.conv_1.out_channels;
  const MatrixView x = frame.map();
  const MatrixView normed = frame.Map(1, frame.channels);
  const MatrixView middle = frame.Map(2, out);
  SEGUE_RETURN_IF_ERROR(frame.Normalise(x, block.norm_1, normed, true));
  SEGUE_RETURN_IF_ERROR(frame.Convolve(block.conv_1, normed, middle));
  SEGUE_RETURN_IF_ERROR(frame.Normalise(middle, block.norm_2, middle, true));
  if (!block.shortcut) return frame.Convolve(block.conv_2, middle, x, x);

  const MatrixView y = frame.Map(1, out);  // `normed` is no longer needed
  SEGUE_RETURN_IF_ERROR(frame.Convolve(*block.shortcut, x, y));
  SEGUE_RETURN_IF_ERROR(frame.Convolve(block.conv_2, middle, y, y));
  std::swap(frame.blocks[0], frame.blocks[1]);
  frame.channels = out;
  return {};
}

// Self-attention of all pixels with one head as wide as the map.
Status VaeDecoder::RunAttention(Frame& frame) const {
  const int64_t channels = frame.channels;
  const MatrixView x = frame.map();
  const MatrixView spare = frame.Map(1, channels);
  const MatrixView qkv = frame.Map(2, 3 * channels);
  SEGUE_RETURN_IF_ERROR(frame.Normalise(x, attention_norm_, spare, false));
  SEGUE_RETURN_IF_ERROR(frame.Convolve(attention_qkv_, spare, qkv));
  auto* first = qkv.Row<float>(0);
  const attention::Sequence sequence = {{{.q = {first, qkv.stride},
                                          .k = {first + channels, qkv.stride},
                                          .v = {first + 2 * channels, qkv.stride},
                                          .o = {spare.data, spare.stride},
                                          .q_rows = frame.pixels(),
                                          .kv_rows = frame.pixels()}}};
  const attention::Options options = {
      .q_heads = 1,
      .kv_heads = 1,
      .head_dim = static_cast<int32_t>(channels),
      .softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(channels)))};
  SEGUE_RETURN_IF_ERROR(
      attention::Attention({.options = options,
                            .sequences = Span<const attention::Sequence>(&sequence, 1),
                            .rounding = frame.context->rounding},
                           frame.context->kernels));
  return frame.Convolve(attention_proj_, spare, x, x);
}

Status VaeDecoder::RunUpsampler(const Convolution& convolution, Frame& frame) const {
  const MatrixView y =
      ContiguousMatrix(frame.blocks[1], 4 * frame.pixels(), convolution.out_channels);
  SEGUE_RETURN_IF_ERROR(frame.Convolve(convolution, frame.map(), y, {}, true));
  std::swap(frame.blocks[0], frame.blocks[1]);
  frame.height *= 2;
  frame.width *= 2;
  frame.channels = convolution.out_channels;
  return {};
}

Status VaeDecoder::Forward(const MatrixView& latents, int64_t height, int64_t width,
                           const MatrixView& samples, Arena& arena,
                           const ForwardContext& context) const {
  const int64_t scale = config_.spatial_scale();
  if (latents.rows != height * width || latents.cols != config_.z_dim ||
      samples.rows != latents.rows * scale * scale || samples.cols != config_.input_channels) {
    return Error{
        .code = ErrorCode::kInternal,
        .operation = "decode latents",
        .argument = "latents and samples",
        .got = Shape{latents.rows, latents.cols}.ToString() + " and " +
               Shape{samples.rows, samples.cols}.ToString(),
        .wanted = Shape{height * width, config_.z_dim}.ToString() + " and " +
                  Shape{height * width * scale * scale, config_.input_channels}.ToString()};
  }
  Frame frame;
  frame.blocks = VaeWorkspace::LayOut(arena, config_, height, width).blocks;
  SEGUE_RETURN_IF_ERROR(arena.Check());
  frame.height = height;
  frame.width = width;
  frame.context = &context;

  const MatrixView quantised = frame.Map(1, config_.z_dim);
  SEGUE_RETURN_IF_ERROR(frame.Convolve(post_quant_conv_, latents, quantised));
  frame.channels = conv_in_.out_channels;
  SEGUE_RETURN_IF_ERROR(frame.Convolve(conv_in_, quantised, frame.map()));
  SEGUE_RETURN_IF_ERROR(RunResidual(mid_0_, frame));
  SEGUE_RETURN_IF_ERROR(RunAttention(frame));
  SEGUE_RETURN_IF_ERROR(RunResidual(mid_1_, frame));
  for (const UpBlock& block : up_blocks_) {
    for (const ResidualBlock& residual : block.residuals) {
      SEGUE_RETURN_IF_ERROR(RunResidual(residual, frame));
    }
    if (block.upsampler) SEGUE_RETURN_IF_ERROR(RunUpsampler(*block.upsampler, frame));
  }
  SEGUE_RETURN_IF_ERROR(frame.Normalise(frame.map(), norm_out_, frame.map(), true));
  return frame.Convolve(conv_out_, frame.map(), samples);
}

}  // namespace segue::model
