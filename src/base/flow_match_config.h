// Parameters of the flow-matching noise schedule, free of any file format.
#pragma once

#include <cstdint>
#include <optional>

#include "segue/status.h"

namespace segue {

enum class TimeShift : uint8_t { kExponential, kLinear };

// FlowMatchEulerDiscreteScheduler's configuration (scheduler/scheduler_config.json). The defaults
// are that class's own, not Qwen-Image's: a key absent from the file means them.
struct FlowMatchConfig {
  int64_t num_train_timesteps = 1000;
  double shift = 1.0;  // used when use_dynamic_shifting is false
  bool use_dynamic_shifting = false;
  // With dynamic shifting, mu is the line through (base_image_seq_len, base_shift) and
  // (max_image_seq_len, max_shift) at the number of packed image rows.
  double base_shift = 0.5;
  double max_shift = 1.15;
  int64_t base_image_seq_len = 256;
  int64_t max_image_seq_len = 4096;
  std::optional<double> shift_terminal;  // last sigma before 0, in (0, 1); absent: no stretch
  TimeShift time_shift = TimeShift::kExponential;

  // Error unless counts are positive, shifts finite (shift positive), the two lengths differ and
  // shift_terminal lies in (0, 1).
  Status Validate() const;
};

}  // namespace segue
