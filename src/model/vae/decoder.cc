#include "model/vae/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/attention.h"
#include "device/gpu.h"
#include "kernels/add.h"
#include "kernels/channel_norm.h"
#include "kernels/convolution_weight.h"
#include "kernels/upsample.h"
#include "kernels/wide_attention.h"

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

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Of the two blocks beside the map, in bytes from their beginning: q | k | v, with rows that
// complete the last keys that a GPU reads together, its scores, and at the end the normed map and
// then the output.
struct AttentionRoom {
  static AttentionRoom LayOut(int64_t pixels, int64_t channels, int64_t block_bytes) {
    const int64_t row_bytes = channels * int64_t{sizeof(uint16_t)};
    return {.qkv_bytes = 3 * pixels * row_bytes,
            .scores = 3 * RoundUp(pixels, kernels::kWideAttentionKeys) * row_bytes,
            .normed = 2 * block_bytes - pixels * row_bytes};
  }
  int64_t scores_bytes() const { return normed - scores; }

  int64_t qkv_bytes;
  int64_t scores;
  int64_t normed;
};

// On the CPU. qkv has the columns q | k | v.
Status Attend(const MatrixView& qkv, const MatrixView& o, float scale,
              const ForwardContext& context) {
  const auto channels = static_cast<int32_t>(o.cols);
  auto* first = qkv.Row<float>(0);
  const attention::Sequence sequence = {{{.q = {first, qkv.stride},
                                          .k = {first + channels, qkv.stride},
                                          .v = {first + 2 * channels, qkv.stride},
                                          .o = {o.data, o.stride},
                                          .q_rows = o.rows,
                                          .kv_rows = o.rows}}};
  const attention::Options options = {
      .q_heads = 1, .kv_heads = 1, .head_dim = channels, .softmax_scale = scale};
  return attention::Attention({.options = options,
                               .sequences = Span<const attention::Sequence>(&sequence, 1),
                               .rounding = context.rounding},
                              context.kernels);
}

}  // namespace

VaeWorkspace VaeWorkspace::LayOut(Arena& arena, const VaeConfig& config, int64_t height,
                                  int64_t width, DType type) {
  VaeWorkspace workspace;
  workspace.block_bytes = RoundUp(
      LargestMap(config, height, width) * static_cast<int64_t>(SizeOf(type)), Arena::kAlignment);
  workspace.data = arena.TakeBytes("decoder maps", 3 * workspace.block_bytes);
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

template <class Decoder, class Visit>
void VaeDecoder::VisitConvolutions(Decoder& decoder, const Visit& visit) {
  const auto visit_residual = [&visit](auto& block) {
    visit(block.conv_1);
    visit(block.conv_2);
    if (block.shortcut) visit(*block.shortcut);
  };
  visit(decoder.post_quant_conv_);
  visit(decoder.conv_in_);
  visit_residual(decoder.mid_0_);
  visit(decoder.attention_qkv_);
  visit(decoder.attention_proj_);
  visit_residual(decoder.mid_1_);
  for (auto& block : decoder.up_blocks_) {
    for (auto& residual : block.residuals) visit_residual(residual);
    if (block.upsampler) visit(*block.upsampler);
  }
  visit(decoder.conv_out_);
}

int64_t VaeDecoder::ReorderedBytes() const {
  Arena counting;
  VisitConvolutions(*this, [&counting](const Convolution& convolution) {
    counting.Take<uint16_t>("weight", kernels::TapsFirst(convolution.weight.shape).NumElements());
  });
  return counting.used_bytes();
}

Status VaeDecoder::ReorderWeights(DeviceMemory& memory, const kernels::Context& context) {
  if (context.stream.device() == DeviceKind::kCpu) return {};
  auto arena = Arena::Create(memory, ReorderedBytes());
  if (!arena) return arena.error();
  Status status;
  VisitConvolutions(*this, [&](Convolution& convolution) {
    const Shape shape = kernels::TapsFirst(convolution.weight.shape);
    auto* y = arena->Take<uint16_t>("weight", shape.NumElements());
    if (!status.ok()) return;
    status = kernels::ReorderConvolutionWeight({.weight = convolution.weight, .y = y}, context);
    convolution.weight = {.data = y, .dtype = DType::kBF16, .shape = shape};
    convolution.order = kernels::WeightOrder::kOutTapsIn;
  });
  reordered_ = std::move(*arena);
  return status;
}

std::vector<kernels::ProductShape> VaeDecoder::Products(int64_t height, int64_t width) const {
  Arena counting;
  const int64_t block_bytes =
      VaeWorkspace::LayOut(counting, config_, height, width, DType::kBF16).block_bytes;
  const int64_t channels = conv_in_.out_channels;
  const int64_t pixels = height * width;
  const auto room = AttentionRoom::LayOut(pixels, channels, block_bytes);
  const int64_t chunk = kernels::WideAttentionChunk(pixels, pixels, room.scores_bytes());
  const auto products = kernels::WideAttentionProducts(chunk, pixels, channels);
  return {products.begin(), products.end()};
}

// The feature map, and room for others: of the workspace's blocks the map has the first or the
// last, so that the other two are one piece.
struct VaeDecoder::Frame {
  Frame(const VaeWorkspace& workspace, const ForwardContext& forward)
      : block_bytes(workspace.block_bytes),
        map_block(static_cast<char*>(workspace.data)),
        middle_block(map_block + block_bytes),
        far_block(middle_block + block_bytes),
        context(&forward) {}

  bool on_gpu() const { return context->kernels.stream.device() != DeviceKind::kCpu; }
  int64_t pixels() const { return height * width; }
  // Of a map of so many channels.
  int64_t Bytes(int64_t columns) const {
    return pixels() * columns * static_cast<int64_t>(SizeOf(context->kernels.activation_type()));
  }
  MatrixView In(char* memory, int64_t columns) const {
    return ContiguousMatrix(memory, context->kernels.activation_type(), pixels(), columns);
  }
  MatrixView map() const { return In(map_block, channels); }
  // The two blocks that are not the map's.
  char* both_others() const { return std::min(middle_block, far_block); }

  Status Normalise(const MatrixView& x, const WeightView& gamma, const MatrixView& y) const {
    return kernels::ChannelNorm(
        {.x = x, .gamma = gamma, .y = y, .silu = true, .rounding = context->rounding},
        context->kernels);
  }
  // y is the norm of the map with its addend; the sum takes the map's place if it is `kept`.
  Status NormaliseMap(const WeightView& gamma, const MatrixView& y, bool silu, bool kept) {
    SEGUE_RETURN_IF_ERROR(
        kernels::ChannelNorm({.x = map(),
                              .addend = addend,
                              .sum = kept && addend.data != nullptr ? map() : MatrixView{},
                              .gamma = gamma,
                              .y = y,
                              .silu = silu,
                              .rounding = context->rounding},
                             context->kernels));
    addend = {};
    return {};
  }
  Status Convolve(const Convolution& convolution, const MatrixView& x, const MatrixView& y,
                  bool upsample = false) const {
    return kernels::Conv2d({.x = x,
                            .height = height,
                            .width = width,
                            .weight = convolution.weight,
                            .order = convolution.order,
                            .bias = convolution.bias,
                            .upsample = upsample,
                            .y = y,
                            .rounding = context->rounding},
                           context->kernels);
  }

  int64_t block_bytes;
  char* map_block;
  char* middle_block;
  char* far_block;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  MatrixView addend;  // of the map, still to be added; or absent
  const ForwardContext* context;
};

// Where the block's own addend goes: beside the map if an upsampler follows, which wants the other
// two blocks and whose output is twice the map, else to the far block.
Status VaeDecoder::RunResidual(const ResidualBlock& block, bool before_upsampler,
                               Frame& frame) const {
  const int64_t out = block.conv_1.out_channels;
  const MatrixView x = frame.map();
  const MatrixView normed = frame.In(frame.far_block, frame.channels);
  const MatrixView middle = frame.In(frame.middle_block, out);
  SEGUE_RETURN_IF_ERROR(frame.NormaliseMap(block.norm_1, normed, true, true));
  SEGUE_RETURN_IF_ERROR(frame.Convolve(block.conv_1, normed, middle));
  SEGUE_RETURN_IF_ERROR(frame.Normalise(middle, block.norm_2, middle));
  if (block.shortcut) {  // in the far block: `normed` is no longer needed, and afterwards the map
    SEGUE_RETURN_IF_ERROR(frame.Convolve(*block.shortcut, x, frame.In(frame.far_block, out)));
    std::swap(frame.map_block, frame.far_block);
    frame.channels = out;
  }
  char* to = before_upsampler ? frame.map_block + frame.Bytes(out) : frame.far_block;
  frame.addend = frame.In(to, out);
  return frame.Convolve(block.conv_2, middle, frame.addend);
}

// Self-attention of all pixels with one head as wide as the map.
Status VaeDecoder::RunAttention(Frame& frame) const {
  const int64_t channels = frame.channels;
  char* first = frame.both_others();
  char* last = first + 2 * frame.block_bytes - frame.Bytes(channels);
  const MatrixView qkv = frame.In(first, 3 * channels);
  const MatrixView normed = frame.In(last, channels);
  SEGUE_RETURN_IF_ERROR(frame.NormaliseMap(attention_norm_, normed, false, true));
  SEGUE_RETURN_IF_ERROR(frame.Convolve(attention_qkv_, normed, qkv));
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(channels)));
  if (frame.on_gpu()) {
    const auto room = AttentionRoom::LayOut(qkv.rows, channels, frame.block_bytes);
    const kernels::Context& context = frame.context->kernels;
    if (room.scores > room.qkv_bytes) {
      SEGUE_RETURN_IF_ERROR(SetToZero(first + room.qkv_bytes, room.scores - room.qkv_bytes,
                                      context.stream.cuda_stream()));
    }
    SEGUE_RETURN_IF_ERROR(kernels::WideAttention({.q = qkv.Cols(0, channels),
                                                  .k = qkv.Cols(channels, channels),
                                                  .v = qkv.Cols(2 * channels, channels),
                                                  .o = normed,
                                                  .scale = scale,
                                                  .workspace = first + room.scores,
                                                  .workspace_bytes = room.scores_bytes()},
                                                 context));
  } else {
    SEGUE_RETURN_IF_ERROR(Attend(qkv, normed, scale, *frame.context));
  }
  frame.addend = frame.In(frame.far_block, channels);
  return frame.Convolve(attention_proj_, normed, frame.addend);
}

Status VaeDecoder::RunUpsampler(const Convolution& convolution, Frame& frame) const {
  const ForwardContext& context = *frame.context;
  const MatrixView x = frame.map();
  const int64_t out = convolution.out_channels;
  if (frame.on_gpu()) {
    kernels::UpsampleParams params = {
        .x = x, .addend = frame.addend, .height = frame.height, .width = frame.width};
    frame.height *= 2;
    frame.width *= 2;
    params.y = frame.In(frame.both_others(), frame.channels);
    SEGUE_RETURN_IF_ERROR(kernels::Upsample(params, context.kernels));
    SEGUE_RETURN_IF_ERROR(frame.Convolve(convolution, params.y, frame.In(frame.map_block, out)));
  } else {
    if (frame.addend.data != nullptr) {
      SEGUE_RETURN_IF_ERROR(kernels::Add(
          {.a = x, .b = frame.addend, .y = x, .rounding = context.rounding}, context.kernels));
    }
    const MatrixView y = ContiguousMatrix(frame.far_block, DType::kF32, 4 * frame.pixels(), out);
    SEGUE_RETURN_IF_ERROR(frame.Convolve(convolution, x, y, true));
    std::swap(frame.map_block, frame.far_block);
    frame.height *= 2;
    frame.width *= 2;
  }
  frame.addend = {};
  frame.channels = out;
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
  const VaeWorkspace workspace =
      VaeWorkspace::LayOut(arena, config_, height, width, context.kernels.activation_type());
  SEGUE_RETURN_IF_ERROR(arena.Check());
  Frame frame(workspace, context);
  frame.height = height;
  frame.width = width;

  const MatrixView quantised = frame.In(frame.far_block, config_.z_dim);
  SEGUE_RETURN_IF_ERROR(frame.Convolve(post_quant_conv_, latents, quantised));
  frame.channels = conv_in_.out_channels;
  SEGUE_RETURN_IF_ERROR(frame.Convolve(conv_in_, quantised, frame.map()));
  SEGUE_RETURN_IF_ERROR(RunResidual(mid_0_, false, frame));
  SEGUE_RETURN_IF_ERROR(RunAttention(frame));
  SEGUE_RETURN_IF_ERROR(RunResidual(mid_1_, false, frame));
  for (const UpBlock& block : up_blocks_) {
    for (const ResidualBlock& residual : block.residuals) {
      const bool last = &residual == &block.residuals.back();
      SEGUE_RETURN_IF_ERROR(RunResidual(residual, last && block.upsampler.has_value(), frame));
    }
    if (block.upsampler) SEGUE_RETURN_IF_ERROR(RunUpsampler(*block.upsampler, frame));
  }
  const MatrixView normed = frame.In(frame.far_block, frame.channels);
  SEGUE_RETURN_IF_ERROR(frame.NormaliseMap(norm_out_, normed, true, false));
  return frame.Convolve(conv_out_, normed, samples);
}

}  // namespace segue::model
