#include "runtime/settings.h"

#include <algorithm>
#include <cmath>

#include "runtime/noise_schedule.h"

namespace segue::runtime {
namespace {

Error RequestError(std::string field, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "check request",
          .argument = std::move(field),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

// "96 or 112" for 100; one size where only one is nearest.
std::string NearestSizes(int value) {
  const int below = value / kPixelsPerToken * kPixelsPerToken;
  if (below < kPixelsPerToken) return std::to_string(kPixelsPerToken);
  if (below >= kMaxSide) return std::to_string(kMaxSide);
  return std::to_string(below) + " or " + std::to_string(below + kPixelsPerToken);
}

Status CheckSide(const char* field, int value) {
  if (value >= kPixelsPerToken && value <= kMaxSide && value % kPixelsPerToken == 0) return {};
  return RequestError(field, std::to_string(value),
                      "a multiple of " + std::to_string(kPixelsPerToken) + " in " +
                          std::to_string(kPixelsPerToken) + ".." + std::to_string(kMaxSide) +
                          " (the nearest: " + NearestSizes(value) + ")");
}

Status CheckSize(int width, int height) {
  SEGUE_RETURN_IF_ERROR(CheckSide("width", width));
  SEGUE_RETURN_IF_ERROR(CheckSide("height", height));
  const int64_t pixels = int64_t{width} * height;
  if (pixels <= kMaxPixels) return {};
  return RequestError("width x height", std::to_string(pixels) + " pixels",
                      "at most " + std::to_string(kMaxPixels));
}

Status CheckLatents(const Request& request, int64_t rows, int64_t channels) {
  if (request.latents.empty()) return {};
  if (static_cast<int64_t>(request.latents.size()) != rows * channels) {
    return RequestError("latents", std::to_string(request.latents.size()) + " values",
                        std::to_string(rows * channels) + " (" + std::to_string(rows) +
                            " rows of " + std::to_string(channels) + ")");
  }
  const auto bad = std::find_if(request.latents.begin(), request.latents.end(),
                                [](float value) { return !std::isfinite(value); });
  if (bad == request.latents.end()) return {};
  return RequestError("latents[" + std::to_string(bad - request.latents.begin()) + "]",
                      std::to_string(*bad), "a finite number");
}

void ResolveGuidance(const Request& request, const ModelDefaults& defaults, Settings& settings) {
  settings.guided = settings.guidance > 1.0 + kGuidanceTolerance;
  if (!settings.guided) {
    if (request.negative_prompt) {
      settings.warnings.push_back(
          "the negative prompt is not used: guidance is 1 or less, so there is no second branch");
    }
    return;
  }
  settings.negative_prompt = request.negative_prompt.value_or(defaults.negative_prompt);
  if (!request.negative_prompt) {
    settings.warnings.push_back("guidance is above 1 without a negative prompt: \"" +
                                settings.negative_prompt + "\" is used");
  }
}

}  // namespace

Result<Settings> ResolveSettings(const Request& request, const ModelDefaults& defaults,
                                 int64_t channels) {
  Settings settings;
  settings.width = request.width.value_or(defaults.width);
  settings.height = request.height.value_or(defaults.height);
  SEGUE_RETURN_IF_ERROR(CheckSize(settings.width, settings.height));
  settings.steps = request.steps.value_or(defaults.steps);
  if (settings.steps < 1 || settings.steps > kMaxSteps) {
    return RequestError("steps", std::to_string(settings.steps), "1.." + std::to_string(kMaxSteps));
  }
  settings.guidance = request.guidance.value_or(defaults.guidance);
  // Written so that a NaN fails too.
  if (!(std::fabs(settings.guidance) <= kMaxGuidance)) {
    return RequestError("guidance", std::to_string(settings.guidance),
                        "a number of at most " + std::to_string(static_cast<int>(kMaxGuidance)));
  }
  settings.seed = request.seed;
  settings.quality = request.quality;
  SEGUE_ASSIGN_OR_RETURN(settings.asked_gates, quality::AskedGates(request.quality, request.gates));
  SEGUE_RETURN_IF_ERROR(CheckLatents(request, settings.image_rows(), channels));
  ResolveGuidance(request, defaults, settings);
  return settings;
}

}  // namespace segue::runtime
