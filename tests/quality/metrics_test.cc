// PSNR and SSIM against their definitions, written out a second time.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "segue/quality.h"

namespace segue {
namespace {

Image Flat(int width, int height, std::array<uint8_t, 3> color) {
  Image image = {.width = width, .height = height, .rgb = {}};
  for (int i = 0; i < width * height; ++i) {
    image.rgb.insert(image.rgb.end(), color.begin(), color.end());
  }
  return image;
}

Image Noise(int width, int height, uint32_t seed) {
  std::mt19937 engine(seed);
  Image image = Flat(width, height, {0, 0, 0});
  for (uint8_t& level : image.rgb) level = static_cast<uint8_t>(engine() % 256);
  return image;
}

// Noise that is near another picture.
Image Near(const Image& image, int spread, uint32_t seed) {
  std::mt19937 engine(seed);
  Image near = image;
  for (uint8_t& level : near.rgb) {
    const int shift = static_cast<int>(engine() % (2 * spread + 1)) - spread;
    level = static_cast<uint8_t>(std::min(255, std::max(0, level + shift)));
  }
  return near;
}

double Luma(const Image& image, int x, int y) {
  const uint8_t* pixel = image.rgb.data() + 3 * (y * image.width + x);
  return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
}

// The definition: a window at a time, moments around the means.
double PlainSsim(const Image& a, const Image& b) {
  double weights[11][11];
  double total = 0;
  for (int j = 0; j < 11; ++j) {
    for (int i = 0; i < 11; ++i) {
      weights[j][i] = std::exp(-((i - 5) * (i - 5) + (j - 5) * (j - 5)) / (2 * 1.5 * 1.5));
      total += weights[j][i];
    }
  }
  double sum = 0;
  int windows = 0;
  for (int y = 0; y + 11 <= a.height; ++y) {
    for (int x = 0; x + 11 <= a.width; ++x, ++windows) {
      const auto mean = [&](auto value) {
        double result = 0;
        for (int j = 0; j < 11; ++j) {
          for (int i = 0; i < 11; ++i) result += weights[j][i] / total * value(x + i, y + j);
        }
        return result;
      };
      const double ma = mean([&](int i, int j) { return Luma(a, i, j); });
      const double mb = mean([&](int i, int j) { return Luma(b, i, j); });
      const double va = mean([&](int i, int j) { return std::pow(Luma(a, i, j) - ma, 2); });
      const double vb = mean([&](int i, int j) { return std::pow(Luma(b, i, j) - mb, 2); });
      const double ab =
          mean([&](int i, int j) { return (Luma(a, i, j) - ma) * (Luma(b, i, j) - mb); });
      constexpr double kC1 = 6.5025;   // (0.01 * 255)^2
      constexpr double kC2 = 58.5225;  // (0.03 * 255)^2
      sum += (2 * ma * mb + kC1) * (2 * ab + kC2) / ((ma * ma + mb * mb + kC1) * (va + vb + kC2));
    }
  }
  return sum / windows;
}

PictureQuality Measure(const Image& a, const Image& b) {
  const Result<PictureQuality> quality = MeasureQuality(a, b);
  EXPECT_TRUE(quality.ok()) << quality.error().Message();
  return quality.ok() ? *quality : PictureQuality{};
}

TEST(MeasureQuality, EqualPicturesAreOne) {
  const Image image = Noise(20, 13, 1);
  const PictureQuality quality = Measure(image, image);
  EXPECT_TRUE(std::isinf(quality.psnr));
  EXPECT_DOUBLE_EQ(quality.ssim, 1);
  EXPECT_EQ(quality.different, 0);
}

TEST(MeasureQuality, FlatPicturesHaveKnownValues) {
  const PictureQuality quality =
      Measure(Flat(16, 16, {100, 100, 100}), Flat(16, 16, {110, 110, 110}));
  EXPECT_NEAR(quality.psnr, 20 * std::log10(25.5), 1e-9);
  EXPECT_NEAR(quality.ssim, (2 * 100.0 * 110 + 6.5025) / (100.0 * 100 + 110.0 * 110 + 6.5025),
              1e-12);
  EXPECT_EQ(quality.different, 256);
}

TEST(MeasureQuality, PsnrIsOfAllChannels) {
  const Image image = Noise(16, 16, 1);
  Image other = image;
  other.rgb[3 * 100 + 2] = static_cast<uint8_t>(other.rgb[3 * 100 + 2] ^ 0x80);
  const PictureQuality quality = Measure(other, image);
  EXPECT_NEAR(quality.psnr, 10 * std::log10(255.0 * 255 / (128.0 * 128 / 768)), 1e-9);
  EXPECT_EQ(quality.different, 1);
}

TEST(MeasureQuality, SsimIsTheDefinitions) {
  for (const auto& [width, height] : {std::pair{11, 11}, {24, 17}, {13, 40}}) {
    const Image image = Noise(width, height, 3);
    for (const int spread : {1, 8, 60}) {
      const Image near = Near(image, spread, 4);
      const double ssim = Measure(near, image).ssim;
      EXPECT_NEAR(ssim, PlainSsim(near, image), 1e-9) << width << "x" << height;
      EXPECT_NEAR(ssim, Measure(image, near).ssim, 1e-12);
    }
    EXPECT_LT(Measure(Noise(width, height, 9), image).ssim, 0.6);
  }
}

TEST(MeasureQuality, RefusesWhatItCannotCompare) {
  EXPECT_FALSE(MeasureQuality(Flat(16, 16, {}), Flat(16, 32, {})).ok());
  EXPECT_FALSE(MeasureQuality(Flat(10, 16, {}), Flat(10, 16, {})).ok());
  Image cut = Flat(16, 16, {});
  cut.rgb.pop_back();
  EXPECT_FALSE(MeasureQuality(cut, Flat(16, 16, {})).ok());
}

}  // namespace
}  // namespace segue
