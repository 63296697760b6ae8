#include "runtime/noise.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace segue::runtime {
namespace {

// Multipliers and key increments of the paper: the latter are the golden ratio and sqrt(3) - 1.
constexpr uint64_t kMultiplier0 = 0xD2511F53u;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kTwoPi = 0x1.921fb54442d18p+2;
constexpr double kWordScale = 0x1p-32;

// ln(x) for positive normal x: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh(s) with
// s = (m - 1) / (m + 1), |s| < 0.172; 12 terms of its series leave less than 1e-18.
double Log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // exact
  if (mantissa < 0x1.6a09e667f3bcdp-1) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return exponent * kLn2 + 2 * s * sum;
}

// cos and sin of 2 pi turns, turns in [0, 1): a quarter turn is taken off exactly, the rest is at
// most pi/4, where the Taylor series up to x^17 leave less than 1e-17.
std::pair<double, double> CosSin(double turns) {
  const int quarter = (static_cast<int>(turns * 8) + 1) / 2;  // the nearest one
  const double x = (turns - quarter * 0.25) * kTwoPi;
  const double x2 = x * x;
  double sine = 1;
  for (int k = 16; k >= 2; k -= 2) sine = 1 - sine * x2 / (k * (k + 1));
  sine *= x;
  double cosine = 1;
  for (int k = 16; k >= 2; k -= 2) cosine = 1 - cosine * x2 / (k * (k - 1));
  switch (quarter & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

void FillGaussian(uint64_t seed, Span<float> values) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  for (size_t begin = 0; begin < values.size(); begin += 4) {
    const uint64_t block = begin / 4;
    const auto words =
        Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key);
    std::array<float, 4> normals;
    for (size_t pair = 0; pair < 2; ++pair) {
      const double uniform = (words[2 * pair] + 0.5) * kWordScale;
      const double radius = std::sqrt(-2 * Log(uniform));
      const auto [cosine, sine] = CosSin(words[2 * pair + 1] * kWordScale);
      normals[2 * pair] = static_cast<float>(radius * cosine);
      normals[2 * pair + 1] = static_cast<float>(radius * sine);
    }
    for (size_t i = 0; i < 4 && begin + i < values.size(); ++i) values[begin + i] = normals[i];
  }
}

}  // namespace segue::runtime
