// The schedules that an engine was told to run alone (EngineOptions::schedules).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/flow_match_config.h"
#include "base/span.h"
#include "runtime/noise_schedule.h"
#include "runtime/settings.h"
#include "segue/engine.h"
#include "segue/status.h"

namespace segue::runtime {

class NamedSchedules {
 public:
  // Absent fields take the model's defaults. Errors: those of ResolveSettings and
  // MakeNoiseSchedule.
  static Result<NamedSchedules> Resolve(Span<const ScheduleName> names,
                                        const ModelDefaults& defaults,
                                        const FlowMatchConfig& config, int64_t channels);

  bool empty() const { return timesteps_.empty(); }
  // What the transformer is fed at their steps, in bfloat16, each once, ascending.
  const std::vector<float>& timesteps() const { return timesteps_; }

  // Error (kUnsupported) with what there is, unless every step of the schedule is one of theirs.
  Status Check(const Settings& settings, const NoiseSchedule& schedule) const;

 private:
  std::vector<float> timesteps_;
  std::string text_;  // "50 steps at 1024x1024, 20 steps at 512x512"
};

}  // namespace segue::runtime
