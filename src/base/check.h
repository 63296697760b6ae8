// Checks of configuration values, with errors that name the field.
#pragma once

#include <cstdint>
#include <string>

#include "segue/status.h"

namespace segue {

// Error (kInvalidArgument) unless low <= value <= high.
Status CheckInRange(const char* operation, const std::string& field, int64_t value, int64_t low,
                    int64_t high);
// Error (kInvalidArgument) unless the value is finite and greater than zero.
Status CheckPositive(const char* operation, const std::string& field, double value);
// Error (kInvalidArgument) unless the value is finite.
Status CheckFinite(const char* operation, const std::string& field, double value);

}  // namespace segue
