// The decoder's operations on a GPU: fast kernels give the plain ones' bytes, and these are right.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/gpu_graph.h"
#include "gpu/vae_rig.h"
#include "kernels/channel_norm.h"
#include "kernels/conv2d.h"
#include "kernels/convolution_weight.h"
#include "kernels/cuda/vae/vae.h"
#include "kernels/upsample.h"
#include "kernels/wide_attention.h"

namespace segue::kernels {
namespace {

struct NormCase {
  int64_t pixels, channels, padding;
  bool add, in_place, silu;
};

struct NormResult {
  std::vector<uint16_t> y, sum;
};

NormResult RunNorm(const VaeRig& rig, const NormCase& one, Rounding rounding, bool reference) {
  const DeviceMatrix x(RandomValues(one.pixels, one.channels, 1, 3.0f), one.padding);
  const DeviceMatrix addend(RandomValues(one.pixels, one.channels, 2, 1.0f), one.padding);
  const DeviceMatrix gamma(RandomValues(1, one.channels, 3), 0);
  const DeviceMatrix y = DeviceMatrix::Poisoned(one.pixels, one.channels, one.padding);
  ChannelNormParams params = {.x = x.View(),
                              .gamma = gamma.Weight({one.channels}),
                              .y = one.in_place && !one.add ? x.View() : y.View(),
                              .silu = one.silu,
                              .rounding = rounding};
  if (one.add) {
    params.addend = addend.View();
    params.sum = x.View();
    if (one.in_place) params.y = addend.View();
  }
  EXPECT_EQ(Text(ChannelNorm(params, rig.On(reference))), "");
  EXPECT_EQ(rig.Finish(), "");
  EXPECT_TRUE(x.CanariesLive() && addend.CanariesLive() && y.CanariesLive());
  const DeviceMatrix& out = !one.in_place ? y : one.add ? addend : x;
  return {out.Bits(), one.add ? x.Bits() : std::vector<uint16_t>{}};
}

TEST(VaeGpu, FastNormsGiveThePlainOnesBytes) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  for (const int64_t channels : {8, 16, 32, 64, 96, 104, 192, 200, 384, 392, 20}) {
    for (const int64_t pixels : {1, 7, 257, 4099}) {
      for (const bool add : {false, true}) {
        const NormCase one = {pixels, channels, pixels % 2 * 8, add, pixels > 100, pixels != 7};
        for (const Rounding rounding : {Rounding::kNone, Rounding::kBF16}) {
          const NormResult fast = RunNorm(rig, one, rounding, false);
          const NormResult plain = RunNorm(rig, one, rounding, true);
          EXPECT_EQ(fast.y, plain.y) << channels << " channels, " << pixels << " pixels " << add;
          EXPECT_EQ(fast.sum, plain.sum) << channels << " channels, " << pixels << " pixels";
        }
      }
    }
  }
}

// The host's operation rounds in the same places: where the sum of squares or a SiLU differs in its
// last bit, a result may be the next bfloat16.
TEST(VaeGpu, NormsAreTheHosts) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  ThreadPool pool(2);
  for (const int64_t channels : {20, 96, 384}) {
    for (const bool silu : {false, true}) {
      const DeviceMatrix x(RandomValues(500, channels, 1, 0.2f), 0);
      const DeviceMatrix gamma(RandomValues(1, channels, 3), 0);
      const DeviceMatrix y = DeviceMatrix::Poisoned(500, channels, 0);
      ASSERT_EQ(Text(ChannelNorm({.x = x.View(),
                                  .gamma = gamma.Weight({channels}),
                                  .y = y.View(),
                                  .silu = silu,
                                  .rounding = Rounding::kBF16},
                                 rig.On())),
                "");
      ASSERT_EQ(rig.Finish(), "");
      std::vector<float> from = x.Get().data;
      std::vector<float> weight = gamma.Get().data;
      std::vector<float> wanted(from.size());
      ASSERT_EQ(Text(ChannelNorm({.x = ContiguousMatrix(from.data(), 500, channels),
                                  .gamma = {.data = weight.data(), .shape = {channels}},
                                  .y = ContiguousMatrix(wanted.data(), 500, channels),
                                  .silu = silu,
                                  .rounding = Rounding::kBF16},
                                 {.stream = Stream::Cpu(pool)})),
                "");
      const std::vector<float> got = y.Get().data;
      int64_t different = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        different += got[i] == wanted[i] ? 0 : 1;
        ASSERT_NEAR(got[i], wanted[i], std::abs(wanted[i]) * 0x1p-6 + 1e-30) << i;
      }
      EXPECT_LT(different, static_cast<int64_t>(got.size()) / 200);
    }
  }
}

TEST(VaeGpu, PixelsOfZerosAndHugeOnesGiveZeros) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  for (const float value : {0.0f, 0x1p70f}) {
    const DeviceMatrix x({.data = std::vector<float>(3 * 96, value), .rows = 3, .cols = 96}, 0);
    const DeviceMatrix gamma(RandomValues(1, 96, 3), 0);
    const DeviceMatrix y = DeviceMatrix::Poisoned(3, 96, 0);
    ASSERT_EQ(
        Text(ChannelNorm({.x = x.View(), .gamma = gamma.Weight({96}), .y = y.View()}, rig.On())),
        "");
    ASSERT_EQ(rig.Finish(), "");
    for (const float got : y.Get().data) EXPECT_EQ(got, 0.0f);
  }
}

TEST(VaeGpu, DoublesMaps) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  for (const int64_t channels : {3, 8, 96}) {
    for (const bool add : {false, true}) {
      for (const bool reference : {false, true}) {
        const int64_t height = 5, width = 7;
        const DeviceMatrix x(RandomValues(height * width, channels, 1), 0);
        const DeviceMatrix addend(RandomValues(height * width, channels, 2), 0);
        const DeviceMatrix y = DeviceMatrix::Poisoned(4 * height * width, channels, 8);
        ASSERT_EQ(Text(Upsample({.x = x.View(),
                                 .addend = add ? addend.View() : MatrixView{},
                                 .height = height,
                                 .width = width,
                                 .y = y.View()},
                                rig.On(reference))),
                  "");
        ASSERT_EQ(rig.Finish(), "");
        EXPECT_TRUE(y.CanariesLive());
        const std::vector<float> a = x.Get().data, b = addend.Get().data, got = y.Get().data;
        for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
          const int64_t pixel = i / channels;
          const int64_t from = pixel / (2 * width) / 2 * width + pixel % (2 * width) / 2;
          const auto at = static_cast<size_t>(from * channels + i % channels);
          ASSERT_EQ(got[static_cast<size_t>(i)], add ? RoundToBF16(a[at] + b[at]) : a[at]) << i;
        }
      }
    }
  }
}

TEST(VaeGpu, SoftmaxOfRowsOfEveryLength) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  for (const int64_t cols : {1, 3, 64, 101, 2048, 2049, 5000, 16384, 27556, 65536}) {
    const int64_t rows = 3;
    const int64_t stride = WideAttentionRowBytes(cols) / 4;
    std::mt19937 engine(static_cast<uint32_t>(cols));
    std::normal_distribution<float> normal(0.0f, 30.0f);
    std::vector<float> scores(static_cast<size_t>(rows * stride), std::nanf(""));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        scores[static_cast<size_t>(r * stride + c)] = normal(engine);
    }
    const DeviceBytes memory(4 * rows * stride);
    cudaMemcpy(memory.data(), scores.data(), scores.size() * 4, cudaMemcpyHostToDevice);
    ASSERT_EQ(Text(cuda::SoftmaxInPlace({.scores = static_cast<float*>(memory.data()),
                                         .rows = rows,
                                         .cols = cols,
                                         .padded_cols = (cols + 7) / 8 * 8,
                                         .stride = stride,
                                         .scale = 0.05f},
                                        rig.On())),
              "");
    ASSERT_EQ(rig.Finish(), "");
    const std::vector<uint8_t> bytes = Read(memory.data(), memory.bytes());
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = scores.data() + r * stride;
      const float maximum = *std::max_element(row, row + cols);
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += std::exp(0.05 * (double{row[c]} - maximum));
      for (int64_t c = 0; c < (cols + 7) / 8 * 8; ++c) {
        const double wanted = c < cols ? std::exp(0.05 * (double{row[c]} - maximum)) / sum : 0.0;
        uint16_t got;
        std::memcpy(&got, bytes.data() + 4 * r * stride + 2 * c, 2);
        ASSERT_NEAR(BF16ToFloat(got), wanted, wanted * 0.0042) << cols << " columns, " << c;
      }
    }
  }
}

struct ConvCase {
  int64_t height, width, in, out, kernel;
  bool residual;
};

// In float64, of the rounded operands: round(conv + bias) without that rounding.
double ConvolveAt(const ConvCase& one, const std::vector<float>& x, const std::vector<float>& w,
                  int64_t pixel, int64_t channel, double* sizes) {
  double sum = 0;
  for (int64_t tap = 0; tap < one.kernel * one.kernel; ++tap) {
    const int64_t row = pixel / one.width + tap / one.kernel - one.kernel / 2;
    const int64_t col = pixel % one.width + tap % one.kernel - one.kernel / 2;
    if (row < 0 || row >= one.height || col < 0 || col >= one.width) continue;
    for (int64_t i = 0; i < one.in; ++i) {
      const int64_t weight = (channel * one.in + i) * one.kernel * one.kernel + tap;
      const double term = double{x[static_cast<size_t>((row * one.width + col) * one.in + i)]} *
                          w[static_cast<size_t>(weight)];
      sum += term;
      *sizes += std::abs(term);
    }
  }
  return sum;
}

TEST(VaeGpu, ConvolutionsAreRight) {
  VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  const ConvCase kCases[] = {
      {16, 16, 16, 16, 1, false},    {16, 24, 16, 384, 3, false},  {26, 42, 384, 384, 3, true},
      {13, 21, 384, 1152, 1, false}, {13, 21, 384, 384, 1, false}, {52, 84, 384, 192, 3, false},
      {64, 64, 192, 384, 3, true},   {64, 64, 192, 384, 1, false}, {104, 166, 96, 96, 3, true},
      {104, 166, 96, 3, 3, false},   {1, 1, 96, 96, 3, false},     {5, 7, 20, 12, 3, true},
      {128, 128, 192, 96, 3, false}, {3, 300, 64, 3, 3, false}};
  for (const ConvCase& one : kCases) {
    const int64_t pixels = one.height * one.width;
    const int64_t taps = one.kernel * one.kernel;
    const auto deviation = static_cast<float>(1 / std::sqrt(double(taps * one.in)));
    const DeviceMatrix x(RandomValues(pixels, one.in, 1), 0);
    const DeviceMatrix weight(RandomValues(one.out, one.in * taps, 2, deviation), 0);
    const DeviceMatrix bias(RandomValues(1, one.out, 3), 0);
    const DeviceMatrix residual(RandomValues(pixels, one.out, 4), 0);
    const DeviceMatrix ordered = DeviceMatrix::Poisoned(one.out, one.in * taps, 0);
    const Shape shape = {one.out, one.in, one.kernel, one.kernel};
    ASSERT_EQ(Text(ReorderConvolutionWeight({.weight = weight.Weight(shape),
                                             .y = static_cast<uint16_t*>(ordered.View().data)},
                                            rig.On())),
              "");
    std::vector<std::vector<uint16_t>> runs;
    std::vector<float> got;
    for (int run = 0; run < 2; ++run) {
      const DeviceMatrix y = DeviceMatrix::Poisoned(pixels, one.out, 0);
      ASSERT_EQ(Text(Conv2d({.x = x.View(),
                             .height = one.height,
                             .width = one.width,
                             .weight = ordered.Weight(TapsFirst(shape)),
                             .order = WeightOrder::kOutTapsIn,
                             .bias = bias.Weight({one.out}),
                             .residual = one.residual ? residual.View() : MatrixView{},
                             .y = y.View()},
                            rig.On(run == 1))),
                "");
      ASSERT_EQ(rig.Finish(), "");
      EXPECT_TRUE(y.CanariesLive() && ordered.CanariesLive());
      runs.push_back(y.Bits());
      got = y.Get().data;
    }
    EXPECT_EQ(runs[0], runs[1]);
    const std::vector<float> a = x.Get().data, w = weight.Get().data, b = bias.Get().data;
    const std::vector<float> r = residual.Get().data;
    std::mt19937 engine(5);
    for (int sample = 0; sample < 300; ++sample) {
      const int64_t pixel = sample == 0 ? 0 : sample == 1 ? pixels - 1 : engine() % pixels;
      const int64_t channel = engine() % one.out;
      const auto at = static_cast<size_t>(pixel * one.out + channel);
      double sizes = 0;
      double wanted =
          ConvolveAt(one, a, w, pixel, channel, &sizes) + b[static_cast<size_t>(channel)];
      double bound = std::abs(wanted) * 0x1p-8 + sizes * 1e-5;
      if (one.residual) {
        wanted += r[at];
        bound += std::abs(wanted) * 0x1p-8 + 0x1p-14;
      }
      ASSERT_NEAR(got[at], wanted, bound)
          << one.in << " to " << one.out << " channels at " << pixel << ", " << channel;
    }
  }
}

TEST(VaeGpu, ConvolutionWeightsKeepTheLastFrame) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  const Shape shape = {5, 7, 3, 3, 3};
  const DeviceMatrix weight(RandomValues(5, 7 * 27, 1), 0);
  const DeviceMatrix y = DeviceMatrix::Poisoned(5, 9 * 7, 0);
  ASSERT_EQ(
      Text(ReorderConvolutionWeight(
          {.weight = weight.Weight(shape), .y = static_cast<uint16_t*>(y.View().data)}, rig.On())),
      "");
  ASSERT_EQ(rig.Finish(), "");
  EXPECT_TRUE(y.CanariesLive());
  const std::vector<float> from = weight.Get().data, got = y.Get().data;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t out = i / 63, tap = i / 7 % 9, in = i % 7;
    EXPECT_EQ(FloatToBF16(got[i]), FloatToBF16(from[(out * 7 + in) * 27 + 18 + tap])) << i;
  }
}

TEST(VaeGpu, WideAttentionIsRightInAnyChunks) {
  const VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  for (const auto& [rows, d] : {std::pair<int64_t, int64_t>{1092, 384}, {256, 64}, {12, 64}}) {
    const DeviceMatrix padded(RandomValues((rows + 7) / 8 * 8, 3 * d, 1), 0);
    const MatrixView qkv = padded.View().Rows(0, rows);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    std::vector<std::vector<uint16_t>> runs;
    std::vector<float> outputs;
    for (const int64_t chunk : {rows, (rows + 1) / 2, (rows + 4) / 5}) {
      DeviceMatrix o = DeviceMatrix::Poisoned(rows, d, 8);
      const DeviceBytes workspace(chunk * WideAttentionRowBytes(rows));
      const auto enqueue = [&] {
        return WideAttention({.q = qkv.Cols(0, d),
                              .k = qkv.Cols(d, d),
                              .v = qkv.Cols(2 * d, d),
                              .o = o.View(),
                              .scale = scale,
                              .workspace = workspace.data(),
                              .workspace_bytes = workspace.bytes()},
                             rig.On());
      };
      ASSERT_EQ(Text(enqueue()), "");
      ASSERT_EQ(rig.Finish(), "");
      EXPECT_TRUE(o.CanariesLive());
      runs.push_back(o.Bits());
      const auto graph = GpuGraph::Capture(*rig.stream, enqueue);
      ASSERT_TRUE(graph.ok()) << graph.error().Message();
      outputs = o.Get().data;
      o.Poison();
      ASSERT_EQ(Text(graph->Launch(*rig.stream)), "");
      ASSERT_EQ(rig.Finish(), "");
      runs.push_back(o.Bits());
    }
    for (const auto& run : runs) EXPECT_EQ(run, runs[0]) << rows;
    const std::vector<float> values = padded.Get().data;
    const auto at = [&](int64_t row, int64_t col) -> double {
      return values[static_cast<size_t>(row * 3 * d + col)];
    };
    double error = 0, norm = 0;
    for (int64_t row = 0; row < rows; row += 1 + rows / 20) {
      std::vector<double> weights;
      double sum = 0;
      for (int64_t key = 0; key < rows; ++key) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += at(row, i) * at(key, d + i);
        weights.push_back(std::exp(score * double{scale}));
        sum += weights.back();
      }
      for (int64_t i = 0; i < d; ++i) {
        double wanted = 0;
        for (int64_t key = 0; key < rows; ++key) {
          wanted += weights[static_cast<size_t>(key)] / sum * at(key, 2 * d + i);
        }
        const double got = outputs[static_cast<size_t>(row * d + i)];
        error += (got - wanted) * (got - wanted);
        norm += wanted * wanted;
      }
    }
    // Two roundings to bfloat16, of weights and of the output, each 2^-9 / sqrt(3) on average.
    EXPECT_LT(std::sqrt(error / norm), 2.5e-3) << rows;
  }
}

}  // namespace
}  // namespace segue::kernels
