#include "model/layers/rotation.h"

#include <cmath>
#include <cstddef>

namespace segue::model {

std::vector<float> InverseFrequencies(double theta, int64_t dim) {
  std::vector<float> frequencies;
  for (int64_t j = 0; j < dim / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dim);
    frequencies.push_back(1.0f / static_cast<float>(std::pow(theta, double{exponent})));
  }
  return frequencies;
}

void WriteRotation(int64_t position, Span<const float> inverse_frequencies, float* cos,
                   float* sin) {
  for (size_t j = 0; j < inverse_frequencies.size(); ++j) {
    // Float64 functions: the argument reaches thousands, where float32 ones differ by library.
    const double angle = static_cast<float>(position) * inverse_frequencies[j];
    cos[j] = static_cast<float>(std::cos(angle));
    sin[j] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace segue::model
