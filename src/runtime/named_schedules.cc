#include "runtime/named_schedules.h"

#include <algorithm>

namespace segue::runtime {
namespace {

std::string NameOf(const Settings& settings) {
  return std::to_string(settings.steps) + " steps at " + std::to_string(settings.width) + "x" +
         std::to_string(settings.height);
}

}  // namespace

Result<NamedSchedules> NamedSchedules::Resolve(Span<const ScheduleName> names,
                                               const ModelDefaults& defaults,
                                               const FlowMatchConfig& config, int64_t channels) {
  NamedSchedules named;
  for (const ScheduleName& name : names) {
    Request request;
    request.steps = name.steps;
    request.width = name.width;
    request.height = name.height;
    SEGUE_ASSIGN_OR_RETURN(const Settings settings, ResolveSettings(request, defaults, channels));
    SEGUE_ASSIGN_OR_RETURN(const NoiseSchedule schedule,
                           MakeNoiseSchedule(config, settings.steps, settings.image_rows()));
    const std::vector<float> timesteps = ModelTimesteps(schedule, true);
    named.timesteps_.insert(named.timesteps_.end(), timesteps.begin(), timesteps.end());
    named.text_ += (named.text_.empty() ? "" : ", ") + NameOf(settings);
  }
  std::sort(named.timesteps_.begin(), named.timesteps_.end());
  const auto repeated = std::unique(named.timesteps_.begin(), named.timesteps_.end());
  named.timesteps_.erase(repeated, named.timesteps_.end());
  return named;
}

Status NamedSchedules::Check(const Settings& settings, const NoiseSchedule& schedule) const {
  for (const float timestep : ModelTimesteps(schedule, true)) {
    if (std::binary_search(timesteps_.begin(), timesteps_.end(), timestep)) continue;
    return Error{
        .code = ErrorCode::kUnsupported,
        .operation = "check request",
        .argument = "schedule",
        .got = NameOf(settings),
        .wanted = "one that was named at load, as modulation weights are not kept: " + text_};
  }
  return {};
}

}  // namespace segue::runtime
