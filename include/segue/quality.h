// Quality tiers: how far a request lets the engine depart from the reference's roundings for speed.
//
// `lossless` is bit for bit what the plain kernels give, one an operation, each rounding where the
// bfloat16 reference rounds. `high` mounts gates: changes at named sites of the transformer that
// keep more in float32 or sum in another order. docs/quality.md says how a gate joins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "segue/image.h"
#include "segue/status.h"

namespace segue {

enum class Quality : uint8_t { kLossless, kHigh };

// "lossless", "high".
const char* QualityName(Quality quality);

// The reverse. Error (kInvalidArgument): no such tier, with those that there are.
Result<Quality> ParseQuality(const std::string& name);

// A change at one site, mounted in every block and stream of a model or in none.
struct GateInfo {
  std::string name;
  std::string site;
  std::string change;    // what it does, for people
  bool in_high = false;  // part of the tier; otherwise a candidate, mounted only by name
};

// All there are, in the order that reports list them.
std::span<const GateInfo> QualityGates();

struct RefusedGate {
  std::string name;
  std::string reason;
};

// What a request's forwards ran with.
struct QualityReport {
  Quality tier = Quality::kLossless;
  std::vector<std::string> mounted;  // names of gates, in QualityGates' order
  std::vector<RefusedGate> refused;  // of those the tier (or the request) asked for
};

// How near a picture is to another of its size, the reference.
struct PictureQuality {
  double psnr = 0;        // 10 log10(255^2 / mean square of all levels), dB; infinite: equal
  double ssim = 0;        // mean structural similarity of the luma, at most 1
  int64_t different = 0;  // pixels of which any channel differs
};

// SSIM (Wang, Bovik, Sheikh, Simoncelli 2004): on luma (0.299 R + 0.587 G + 0.114 B, as real
// numbers), in windows of 11x11 weighted by a Gaussian of deviation 1.5 (weights add up to 1) that
// lie wholly inside the picture; K1 0.01, K2 0.03, range 255; the mean of all windows.
// Errors (kInvalidArgument): sizes that differ, a side below 11 pixels.
Result<PictureQuality> MeasureQuality(const Image& picture, const Image& reference);

// What a gate's, or a tier's, worst picture of a suite of at least kLeastPictures must keep.
inline constexpr double kLeastPsnr = 35.0;
inline constexpr double kLeastSsim = 0.98;
inline constexpr int kLeastPictures = 8;

}  // namespace segue
