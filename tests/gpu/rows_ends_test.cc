// The ends of a forward on the GPU: embeddings, guidance and the Euler step, latents and pixels,
// against the reference on the host, and the fast sampler step against the plain one.
#include "gpu/rows_rig.h"
#include "kernels/embedding.h"
#include "kernels/finite.h"
#include "kernels/guidance.h"
#include "kernels/latents.h"
#include "kernels/pixels.h"
#include "kernels/row_index.h"
#include "kernels/sampler_step.h"
#include "kernels/timestep_embedding.h"

namespace segue::kernels {
namespace {

class RowsEndsGpu : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  ThreadPool pool_{2};
  Context on_host_{.stream = Stream::Cpu(pool_)};
};

TEST_F(RowsEndsGpu, EmbeddingTakesTheNearestRow) {
  const Values table = RandomValues(10, 24, 1);
  std::vector<uint16_t> bits;
  for (const float value : table.data) bits.push_back(FloatToBF16(value));
  const DeviceArray<uint16_t> device_table(bits);
  const DeviceArray<int32_t> ids({3, 9, 0, -7, 10, INT32_MAX});
  const DeviceMatrix y = DeviceMatrix::Poisoned(6, 24, 5);
  ASSERT_EQ(Text(Embedding(
                {.ids = ids.data(),
                 .table = {.data = device_table.data(), .dtype = DType::kBF16, .shape = {10, 24}},
                 .y = y.View()},
                OnGpu())),
            "");
  ASSERT_EQ(Finish(), "");
  EXPECT_TRUE(y.ChangedOnly(0, 24));
  const Values got = y.Get();
  const int64_t want[] = {3, 9, 0, 0, 9, 9};
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_TRUE(std::equal(got.Row(row), got.Row(row) + 24, table.Row(want[row]))) << row;
  }
}

TEST_F(RowsEndsGpu, TimestepEmbedding) {
  std::vector<float> timesteps = {0.0f, 1.0f, 0.02f, 0.5f};
  for (const float value : RandomValues(1, 60, 2, 0.3f, 0.5f).data) timesteps.push_back(value);
  const DeviceArray<float> device_timesteps(timesteps);
  const auto rows = static_cast<int64_t>(timesteps.size());
  const DeviceMatrix y = DeviceMatrix::Poisoned(rows, 256, 8);
  ASSERT_EQ(Text(TimestepEmbedding({.timesteps = device_timesteps.data(), .y = y.View()}, OnGpu())),
            "");
  ASSERT_EQ(Finish(), "");
  EXPECT_TRUE(y.ChangedOnly(0, 256));
  Values host = {
      .data = std::vector<float>(static_cast<size_t>(rows * 256)), .rows = rows, .cols = 256};
  ASSERT_TRUE(
      TimestepEmbedding(
          {.timesteps = timesteps.data(), .y = host.View(), .rounding = Rounding::kBF16}, on_host_)
          .ok());
  const Distance distance = Compare(y.Get(), host);
  EXPECT_LE(distance.differ, 4);  // where the host's own functions are half an ulp off
}

TEST_F(RowsEndsGpu, RowIndexSpreadsEntries) {
  const DeviceArray<int32_t> slot({0, 2, 1, 1, -4, 3, 99});
  DeviceArray<int32_t> entry({7, 8, 9});
  const DeviceArray<int32_t> index(std::vector<int32_t>(8, -5));
  ASSERT_EQ(Text(RowIndex({.slot = slot.data(),
                           .entry = entry.data(),
                           .slots = 3,
                           .index = index.data(),
                           .count = 7},
                          OnGpu())),
            "");
  ASSERT_EQ(Finish(), "");
  EXPECT_EQ(index.Get(), (std::vector<int32_t>{7, 9, 8, 8, 7, 9, 9, -5}));
}

TEST_F(RowsEndsGpu, FiniteFindsOneElement) {
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    for (const int64_t at : {-1, 0, 63, 64 * 37 + 5, 64 * 99 + 63}) {
      Values values = RandomValues(100, 64, 3, 1e30f);
      if (at >= 0) values.data[at] = odd;
      const DeviceMatrix x(values, 8);  // NaN between the rows
      const DeviceArray<uint8_t> flags({9, 9, 9});
      ASSERT_EQ(
          Text(Finite({.x = x.View(), .all_finite = reinterpret_cast<bool*>(flags.data() + 1)},
                      OnGpu())),
          "");
      ASSERT_EQ(Finish(), "");
      EXPECT_EQ(flags.Get(), (std::vector<uint8_t>{9, static_cast<uint8_t>(at < 0 ? 1 : 0), 9}));
    }
  }
}

TEST_F(RowsEndsGpu, LatentsThereAndBack) {
  constexpr int64_t kHeight = 3;
  constexpr int64_t kWidth = 5;
  constexpr int64_t kChannels = 16;
  const Values latents = RandomValues(kChannels, 4 * kHeight * kWidth, 4);
  Values mean = RandomValues(1, kChannels, 5);
  Values std = RandomValues(1, kChannels, 6, 0.2f, 2.0f);
  for (float& value : std.data) value += 0.001f;  // not a bfloat16
  const DeviceArray<float> device_latents(latents.data);
  const DeviceMatrix tokens = DeviceMatrix::Poisoned(kHeight * kWidth, kChannels * 4, 8);
  ASSERT_EQ(Text(PackLatents({.latents = device_latents.data(),
                              .grid_height = kHeight,
                              .grid_width = kWidth,
                              .tokens = tokens.View()},
                             OnGpu())),
            "");
  ASSERT_EQ(Finish(), "");
  EXPECT_TRUE(tokens.ChangedOnly(0, kChannels * 4));
  Values host_tokens = tokens.Get();
  ASSERT_TRUE(PackLatents({.latents = latents.data.data(),
                           .grid_height = kHeight,
                           .grid_width = kWidth,
                           .tokens = host_tokens.View()},
                          on_host_)
                  .ok());
  EXPECT_EQ(Compare(tokens.Get(), host_tokens).differ, 0);
  for (const bool statistics : {false, true}) {
    for (const Rounding rounding : kRoundings) {
      const DeviceMatrix grid = DeviceMatrix::Poisoned(4 * kHeight * kWidth, kChannels, 3);
      Values host = {.data = std::vector<float>(4 * kHeight * kWidth * kChannels),
                     .rows = 4 * kHeight * kWidth,
                     .cols = kChannels};
      UnpackLatentsParams params = {.tokens = tokens.View(),
                                    .grid_height = kHeight,
                                    .grid_width = kWidth,
                                    .grid = grid.View(),
                                    .rounding = rounding};
      if (statistics) {
        params.mean = mean.data.data();
        params.std = std.data.data();
      }
      ASSERT_EQ(Text(UnpackLatents(params, OnGpu())), "");
      ASSERT_EQ(Finish(), "");
      EXPECT_TRUE(grid.ChangedOnly(0, kChannels));
      params.tokens = host_tokens.View();
      params.grid = host.View();
      ASSERT_TRUE(UnpackLatents(params, on_host_).ok());
      EXPECT_EQ(Compare(grid.Get(), host).differ, 0);
    }
  }
}

TEST_F(RowsEndsGpu, PixelsOfEveryLevel) {
  Values x = RandomValues(1000, 3, 7, 0.7f);
  x.data[0] = NAN;
  x.data[1] = INFINITY;
  x.data[2] = -INFINITY;
  for (int i = 0; i <= 512; ++i) x.data[3 + i] = RoundToBF16((i - 256) / 256.0f);
  const DeviceMatrix device_x(x, 1);
  for (const Rounding rounding : kRoundings) {
    const DeviceArray<uint8_t> pixels(std::vector<uint8_t>(3001, 77));
    ASSERT_EQ(Text(Pixels({.x = device_x.View(), .pixels = pixels.data(), .rounding = rounding},
                          OnGpu())),
              "");
    ASSERT_EQ(Finish(), "");
    std::vector<uint8_t> host(3001, 77);
    ASSERT_TRUE(
        Pixels({.x = x.View(), .pixels = host.data(), .rounding = rounding}, on_host_).ok());
    EXPECT_EQ(pixels.Get(), host);
  }
}

TEST_F(RowsEndsGpu, GuidanceAgainstFloat64AndTheHost) {
  for (const int64_t channels : {3, 64, 300}) {
    const Values cond = RandomValues(50, channels, 8);
    Values negative = RandomValues(50, channels, 9);
    // A token whose combination is exactly 0: cond = negative = 0.
    Values zero_cond = cond;
    std::fill_n(zero_cond.Row(3), channels, 0.0f);
    std::fill_n(negative.Row(3), channels, 0.0f);
    std::vector<double> want;
    for (int64_t row = 0; row < 50; ++row) {
      double cond_squares = 0;
      double comb_squares = 0;
      std::vector<double> comb;
      for (int64_t i = 0; i < channels; ++i) {
        const double c = zero_cond.Row(row)[i];
        const double n = negative.Row(row)[i];
        comb.push_back(n + 4.5 * (c - n));
        cond_squares += c * c;
        comb_squares += comb.back() * comb.back();
      }
      const double ratio = comb_squares == 0 ? 0 : std::sqrt(cond_squares / comb_squares);
      for (const double value : comb) want.push_back(value * ratio);
    }
    const DeviceMatrix device_cond(zero_cond, 8);
    const DeviceMatrix device_negative(negative, 8);
    for (const Rounding rounding : kRoundings) {
      const DeviceMatrix y = DeviceMatrix::Poisoned(50, channels, 3);
      ASSERT_EQ(Text(Guidance({.cond = device_cond.View(),
                               .negative = device_negative.View(),
                               .y = y.View(),
                               .scale = 4.5f,
                               .rounding = rounding},
                              OnGpu())),
                "");
      ASSERT_EQ(Finish(), "");
      EXPECT_TRUE(y.ChangedOnly(0, channels));
      EXPECT_LE(WorstError(y.Get(), want, kHalfUlp, rounding == Rounding::kNone ? 1e-5 : 0.05), 1);
      if (rounding == Rounding::kNone) continue;
      Values host = zero_cond;
      ASSERT_TRUE(Guidance({.cond = host.View(),
                            .negative = negative.View(),
                            .y = host.View(),
                            .scale = 4.5f,
                            .rounding = rounding},
                           on_host_)
                      .ok());
      // One rounding of a norm that falls the other way changes its whole token.
      EXPECT_LE(Compare(y.Get(), host).differ, 2 * channels);
    }
  }
}

// Three requests: guided, not guided, guided with a NaN in what its negative prompt gave.
struct SamplerOperands {
  SamplerOperands(int64_t channels, int64_t padding)
      : velocity(Velocity(channels), padding),
        latents(RandomValues(60, channels, 11), padding),
        records({{.prompt_row = 0, .negative_row = 20, .rows = 13, .guidance = 4.0f, .dt = -0.03f},
                 {.prompt_row = 33, .negative_row = -1, .rows = 7, .guidance = 1.0f, .dt = -0.1f},
                 {.prompt_row = 40, .negative_row = 50, .rows = 9, .guidance = 2.5f, .dt = -0.5f}}),
        not_finite(std::vector<int32_t>(4, -9)) {}

  static Values Velocity(int64_t channels) {
    Values velocity = RandomValues(60, channels, 10);
    velocity.Row(53)[2] = NAN;
    velocity.Row(59)[0] = INFINITY;  // belongs to nobody
    return velocity;
  }
  SamplerStepParams Params(Rounding rounding) {
    return {.velocity = velocity.View(),
            .latents = latents.View(),
            .records = records.data(),
            .count = 3,
            .max_rows = 16,
            .not_finite = not_finite.data(),
            .rounding = rounding};
  }

  DeviceMatrix velocity;
  DeviceMatrix latents;
  DeviceArray<SamplerRecord> records;
  DeviceArray<int32_t> not_finite;
};

TEST_F(RowsEndsGpu, SamplerStepFastPlainAndHost) {
  for (const int64_t channels : {8, 12, 64, 136, 264}) {
    for (const Rounding rounding : kRoundings) {
      SamplerOperands fast(channels, 8);
      SamplerOperands plain(channels, 8);
      ASSERT_EQ(Text(SamplerStep(fast.Params(rounding), OnGpu())), "");
      ASSERT_EQ(Text(SamplerStep(plain.Params(rounding), OnGpu(true))), "");
      ASSERT_EQ(Finish(), "");
      EXPECT_EQ(fast.velocity.Bits(), plain.velocity.Bits());
      EXPECT_EQ(fast.latents.Bits(), plain.latents.Bits());
      EXPECT_TRUE(fast.velocity.ChangedOnly(0, channels));
      EXPECT_TRUE(fast.latents.ChangedOnly(0, channels));
      const int32_t third = kNegativeVelocityNotFinite | kLatentsNotFinite;
      const std::vector<int32_t> bits = {0, 0, third, -9};
      EXPECT_EQ(fast.not_finite.Get(), bits);
      EXPECT_EQ(plain.not_finite.Get(), bits);
      if (rounding == Rounding::kNone) continue;

      Values velocity = SamplerOperands::Velocity(channels);
      Values latents = RandomValues(60, channels, 11);
      std::vector<SamplerRecord> records = fast.records.Get();
      std::vector<int32_t> not_finite(3);
      ASSERT_TRUE(SamplerStep({.velocity = velocity.View(),
                               .latents = latents.View(),
                               .records = records.data(),
                               .count = 3,
                               .max_rows = 16,
                               .not_finite = not_finite.data(),
                               .rounding = rounding},
                              on_host_)
                      .ok());
      EXPECT_EQ(not_finite, (std::vector<int32_t>{0, 0, third}));
      EXPECT_LE(Compare(fast.velocity.Get(), velocity).differ, 2 * channels);
      EXPECT_LE(Compare(fast.latents.Get(), latents).differ, 4 * channels);
    }
  }
}

// What lies outside the matrices, or above the rows a launch was made for, is left alone.
TEST_F(RowsEndsGpu, SamplerRecordsOutOfRangeTouchNothing) {
  for (const bool reference : {false, true}) {
    SamplerOperands operands(64, 8);
    operands.records.Set({{.prompt_row = 60, .negative_row = 0, .rows = 5},
                          {.prompt_row = -70, .negative_row = -1, .rows = 5},
                          {.prompt_row = 0, .negative_row = 60, .rows = 5}});
    const std::vector<uint16_t> velocity = operands.velocity.Bits();
    const std::vector<uint16_t> latents = operands.latents.Bits();
    ASSERT_EQ(Text(SamplerStep(operands.Params(Rounding::kBF16), OnGpu(reference))), "");
    ASSERT_EQ(Finish(), "");
    EXPECT_EQ(operands.velocity.Bits(), velocity);
    EXPECT_EQ(operands.latents.Bits(), latents);
    EXPECT_EQ(operands.not_finite.Get(), (std::vector<int32_t>{0, 0, 0, -9}));
  }
}

}  // namespace
}  // namespace segue::kernels
