#include "base/check.h"

#include <cmath>

namespace segue {

Status CheckInRange(const char* operation, const std::string& field, int64_t value, int64_t low,
                    int64_t high) {
  if (value >= low && value <= high) return {};
  return Error{ErrorCode::kInvalidArgument, operation, field, std::to_string(value),
               std::to_string(low) + ".." + std::to_string(high)};
}

Status CheckPositive(const char* operation, const std::string& field, double value) {
  if (std::isfinite(value) && value > 0) return {};
  return Error{ErrorCode::kInvalidArgument, operation, field, std::to_string(value),
               "a number above 0"};
}

Status CheckFinite(const char* operation, const std::string& field, double value) {
  if (std::isfinite(value)) return {};
  return Error{ErrorCode::kInvalidArgument, operation, field, std::to_string(value),
               "a finite number"};
}

}  // namespace segue
