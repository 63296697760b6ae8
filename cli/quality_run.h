// Judges gates: each alone, and the whole tier, against lossless pictures of the same seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "segue/engine.h"
#include "segue/quality.h"

namespace segue::cli {

// What one set of gates did to the pictures of a suite.
struct QualityEntry {
  std::string name;       // the gate's, or "high"
  bool tier = false;      // the whole tier
  bool binding = false;   // in the tier, or the tier itself: below the limits is a failure
  QualityReport report;   // of its pictures; nothing mounted: none were made
  double worst_psnr = 0;  // infinite: every picture is the lossless one
  size_t worst_psnr_picture = 0;
  double worst_ssim = 0;
  size_t worst_ssim_picture = 0;
  int different = 0;        // pictures that are not the lossless one
  double step_seconds = 0;  // the sum over the pictures of their median step

  bool judged() const { return !report.mounted.empty(); }
  bool keeps() const { return judged() && worst_psnr >= kLeastPsnr && worst_ssim >= kLeastSsim; }
};

struct QualityRun {
  std::string device;
  std::string attention_backend;
  std::vector<QualityEntry> entries;  // gates, then the tier
  double lossless_step_seconds = 0;
  // Whether a lossless picture that is drawn again after all others has the bytes it had.
  bool lossless_again = false;

  // Nothing that binds is below the limits, and nothing leaked.
  bool ok() const;
};

// Draws the pictures of all `gates` (names) and of the tier. `progress` is told what is being drawn
// and returns false to stop. Errors: those of the engine; no gate that can be mounted.
Result<QualityRun> JudgeQuality(Engine& engine, const std::vector<Request>& suite,
                                const std::vector<std::string>& gates,
                                const std::function<bool(const std::string&)>& progress);

}  // namespace segue::cli
