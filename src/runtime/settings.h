// A request with every absent field filled in, and the checks that need no compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quality/gate.h"
#include "segue/engine.h"
#include "segue/request.h"
#include "segue/status.h"

namespace segue::runtime {

// Pixels of a token of the transformer along each side: the decoder's 8 times the packing's 2.
inline constexpr int kPixelsPerToken = 16;
// The longest side and the largest area of a picture. Qwen-Image's largest official size has 1.8
// megapixels; nine times that leaves room, and keeps every count of rows far below 2^31.
inline constexpr int kMaxSide = 8192;
inline constexpr int64_t kMaxPixels = int64_t{4096} * 4096;
// Scales beyond this only overflow.
inline constexpr double kMaxGuidance = 1000.0;
// Guidance is on above 1 by more than this, so that a 1 computed in floating point stays 1.
inline constexpr double kGuidanceTolerance = 1e-6;

struct Settings {
  int width = 0;
  int height = 0;
  int steps = 0;
  double guidance = 1;
  bool guided = false;          // whether the second (negative) branch runs
  std::string negative_prompt;  // empty unless guided
  uint64_t seed = 0;
  Quality quality = Quality::kLossless;
  quality::GateSet asked_gates;
  std::vector<std::string> warnings;

  int64_t grid_height() const { return height / kPixelsPerToken; }
  int64_t grid_width() const { return width / kPixelsPerToken; }
  int64_t image_rows() const { return grid_height() * grid_width(); }
  int sequences() const { return guided ? 2 : 1; }
};

// Errors name the field, what was got and what is accepted: sizes that are not positive multiples
// of 16 (with the nearest that are) or above the maximum, steps outside 1..1000, guidance that is
// not a number or too large, latents of another size or not finite, an unknown tier or gate.
// `channels`: of a packed latent row.
Result<Settings> ResolveSettings(const Request& request, const ModelDefaults& defaults,
                                 int64_t channels);

}  // namespace segue::runtime
