// How near two pictures are: PSNR of the levels, SSIM of the luma.
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "segue/quality.h"

namespace segue {
namespace {

constexpr int kWindow = 11;
constexpr int kMiddle = kWindow / 2;
constexpr double kDeviation = 1.5;
constexpr double kPeak = 255.0;
constexpr double kC1 = (0.01 * kPeak) * (0.01 * kPeak);
constexpr double kC2 = (0.03 * kPeak) * (0.03 * kPeak);

Error PictureError(std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "measure quality",
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

std::string SizeText(const Image& image) {
  return std::to_string(image.width) + "x" + std::to_string(image.height);
}

Status CheckPictures(const Image& picture, const Image& reference) {
  if (picture.width != reference.width || picture.height != reference.height) {
    return PictureError("pictures", SizeText(picture) + " and " + SizeText(reference),
                        "two of one size");
  }
  if (picture.width < kWindow || picture.height < kWindow) {
    return PictureError("pictures", SizeText(picture), "sides of 11 pixels or more");
  }
  const size_t bytes =
      size_t{3} * static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height);
  if (picture.rgb.size() == bytes && reference.rgb.size() == bytes) return {};
  return PictureError("pictures",
                      std::to_string(picture.rgb.size()) + " and " +
                          std::to_string(reference.rgb.size()) + " bytes",
                      std::to_string(bytes) + " bytes each");
}

// A picture of real numbers.
struct Plane {
  int width = 0;
  int height = 0;
  std::vector<double> values;

  double At(int x, int y) const {
    return values[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
};

Plane LumaOf(const Image& image) {
  Plane plane = {image.width, image.height, std::vector<double>(image.rgb.size() / 3)};
  for (size_t i = 0; i < plane.values.size(); ++i) {
    const uint8_t* pixel = image.rgb.data() + 3 * i;
    plane.values[i] = 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
  }
  return plane;
}

Plane Times(const Plane& a, const Plane& b) {
  Plane product = a;
  for (size_t i = 0; i < product.values.size(); ++i) product.values[i] *= b.values[i];
  return product;
}

// The window is a product of two of these, one a direction.
std::array<double, kWindow> GaussianWeights() {
  std::array<double, kWindow> weights = {};
  double sum = 0;
  for (int i = 0; i < kWindow; ++i) {
    const double distance = i - kMiddle;
    weights[static_cast<size_t>(i)] =
        std::exp(-distance * distance / (2 * kDeviation * kDeviation));
    sum += weights[static_cast<size_t>(i)];
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Weighted means of all windows that lie inside.
Plane WindowMeans(const Plane& plane) {
  static const std::array<double, kWindow> weights = GaussianWeights();
  Plane across = {plane.width - kWindow + 1, plane.height, {}};
  across.values.reserve(static_cast<size_t>(across.width) * static_cast<size_t>(across.height));
  for (int y = 0; y < across.height; ++y) {
    for (int x = 0; x < across.width; ++x) {
      double sum = 0;
      for (int i = 0; i < kWindow; ++i) sum += weights[static_cast<size_t>(i)] * plane.At(x + i, y);
      across.values.push_back(sum);
    }
  }
  Plane means = {across.width, plane.height - kWindow + 1, {}};
  means.values.reserve(static_cast<size_t>(means.width) * static_cast<size_t>(means.height));
  for (int y = 0; y < means.height; ++y) {
    for (int x = 0; x < means.width; ++x) {
      double sum = 0;
      for (int i = 0; i < kWindow; ++i) {
        sum += weights[static_cast<size_t>(i)] * across.At(x, y + i);
      }
      means.values.push_back(sum);
    }
  }
  return means;
}

double Ssim(const Plane& a, const Plane& b) {
  const Plane mean_a = WindowMeans(a);
  const Plane mean_b = WindowMeans(b);
  const Plane square_a = WindowMeans(Times(a, a));
  const Plane square_b = WindowMeans(Times(b, b));
  const Plane product = WindowMeans(Times(a, b));
  double sum = 0;
  for (size_t i = 0; i < mean_a.values.size(); ++i) {
    const double ma = mean_a.values[i];
    const double mb = mean_b.values[i];
    const double variance_a = square_a.values[i] - ma * ma;
    const double variance_b = square_b.values[i] - mb * mb;
    const double covariance = product.values[i] - ma * mb;
    sum += (2 * ma * mb + kC1) * (2 * covariance + kC2) /
           ((ma * ma + mb * mb + kC1) * (variance_a + variance_b + kC2));
  }
  return sum / static_cast<double>(mean_a.values.size());
}

}  // namespace

Result<PictureQuality> MeasureQuality(const Image& picture, const Image& reference) {
  SEGUE_RETURN_IF_ERROR(CheckPictures(picture, reference));
  PictureQuality quality;
  double squares = 0;
  for (size_t i = 0; i < picture.rgb.size(); i += 3) {
    bool differs = false;
    for (size_t c = 0; c < 3; ++c) {
      const double difference = int{picture.rgb[i + c]} - int{reference.rgb[i + c]};
      squares += difference * difference;
      differs |= difference != 0;
    }
    quality.different += differs ? 1 : 0;
  }
  const double mean = squares / static_cast<double>(picture.rgb.size());
  quality.psnr =
      squares > 0 ? 10 * std::log10(kPeak * kPeak / mean) : std::numeric_limits<double>::infinity();
  quality.ssim = Ssim(LumaOf(picture), LumaOf(reference));
  return quality;
}

}  // namespace segue
