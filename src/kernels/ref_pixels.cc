#include <cmath>

#include "kernels/math.h"
#include "kernels/reference.h"

namespace segue::kernels {

Status RefPixels(const PixelsParams& params, const Context&) {
  const Rounding rounding = params.rounding;
  for (int64_t row = 0; row < params.x.rows; ++row) {
    const float* x = params.x.Row<float>(row);
    uint8_t* pixel = params.pixels + row * params.x.cols;
    for (int64_t i = 0; i < params.x.cols; ++i) {
      const float sample = Scalar::Min(1.0f, Scalar::Max(-1.0f, x[i]));
      float value = RoundStep<Scalar>(sample * 0.5f, rounding);
      value = RoundStep<Scalar>(value + 0.5f, rounding);
      // Ties to even, by the mode that the process starts with and nothing here changes.
      const float level = std::nearbyint(Scalar::Min(1.0f, Scalar::Max(0.0f, value)) * 255.0f);
      pixel[i] = level > 0.0f ? static_cast<uint8_t>(level) : uint8_t{0};
    }
  }
  return {};
}

}  // namespace segue::kernels
