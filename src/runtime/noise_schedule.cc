#include "runtime/noise_schedule.h"

#include <cmath>
#include <cstddef>
#include <string>

#include "base/dtype.h"

namespace segue::runtime {
namespace {

// numpy.linspace(1, 1/steps, steps): start + i * (width / (steps - 1)) in float64, the last value
// set to the end exactly; then rounded to float32.
std::vector<float> UnshiftedSigmas(int steps) {
  std::vector<float> sigmas(static_cast<size_t>(steps));
  const double end = 1.0 / steps;
  const double width = steps > 1 ? (end - 1.0) / (steps - 1) : 0.0;
  for (int i = 0; i < steps; ++i) {
    sigmas[static_cast<size_t>(i)] = static_cast<float>(i * width + 1.0);
  }
  if (steps > 1) sigmas.back() = static_cast<float>(end);
  return sigmas;
}

void ShiftByResolution(const FlowMatchConfig& config, double mu, std::vector<float>& sigmas) {
  const auto factor =
      static_cast<float>(config.time_shift == TimeShift::kExponential ? std::exp(mu) : mu);
  for (float& sigma : sigmas) sigma = factor / (factor + (1.0f / sigma - 1.0f));
}

void ShiftByConstant(double shift, std::vector<float>& sigmas) {
  const auto factor = static_cast<float>(shift);
  const auto factor_less_one = static_cast<float>(shift - 1.0);
  for (float& sigma : sigmas) sigma = factor * sigma / (1.0f + factor_less_one * sigma);
}

// Stretches 1 - sigma so that the last sigma becomes `terminal`.
void StretchToTerminal(double terminal, std::vector<float>& sigmas) {
  const float last = 1.0f - sigmas.back();
  if (last == 0.0f) return;
  const float scale = last / static_cast<float>(1.0 - terminal);
  for (float& sigma : sigmas) sigma = 1.0f - (1.0f - sigma) / scale;
}

Error ScheduleError(const char* argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "make the noise schedule",
          .argument = argument,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

}  // namespace

double ResolutionShift(const FlowMatchConfig& config, int64_t image_rows) {
  const double slope = (config.max_shift - config.base_shift) /
                       static_cast<double>(config.max_image_seq_len - config.base_image_seq_len);
  const double offset = config.base_shift - slope * static_cast<double>(config.base_image_seq_len);
  return static_cast<double>(image_rows) * slope + offset;
}

Result<NoiseSchedule> MakeNoiseSchedule(const FlowMatchConfig& config, int steps,
                                        int64_t image_rows) {
  if (steps < 1 || steps > kMaxSteps) {
    return ScheduleError("steps", std::to_string(steps), "1.." + std::to_string(kMaxSteps));
  }
  if (image_rows < 1) return ScheduleError("image rows", std::to_string(image_rows), "at least 1");

  NoiseSchedule schedule;
  schedule.sigmas = UnshiftedSigmas(steps);
  if (config.use_dynamic_shifting) {
    schedule.mu = ResolutionShift(config, image_rows);
    ShiftByResolution(config, schedule.mu, schedule.sigmas);
  } else {
    ShiftByConstant(config.shift, schedule.sigmas);
  }
  if (config.shift_terminal) StretchToTerminal(*config.shift_terminal, schedule.sigmas);

  const auto train_timesteps = static_cast<float>(config.num_train_timesteps);
  for (const float sigma : schedule.sigmas) schedule.timesteps.push_back(sigma * train_timesteps);
  schedule.sigmas.push_back(0.0f);
  for (size_t i = 1; i < schedule.sigmas.size(); ++i) {
    if (!(schedule.sigmas[i] < schedule.sigmas[i - 1])) {  // also when either is not a number
      return ScheduleError(
          "scheduler configuration",
          "sigmas that do not fall at step " + std::to_string(i) + " of " + std::to_string(steps),
          "shifts that keep them falling");
    }
  }
  return schedule;
}

float ModelTimestep(float timestep, bool bf16_rounding) {
  // The pipeline divides by a literal 1000, whatever the number of training timesteps.
  if (!bf16_rounding) return timestep / 1000.0f;
  return RoundToBF16(RoundToBF16(timestep) / 1000.0f);
}

std::vector<float> ModelTimesteps(const NoiseSchedule& schedule, bool bf16_rounding) {
  std::vector<float> timesteps(schedule.timesteps.size());
  for (size_t i = 0; i < timesteps.size(); ++i) {
    timesteps[i] = ModelTimestep(schedule.timesteps[i], bf16_rounding);
  }
  return timesteps;
}

}  // namespace segue::runtime
